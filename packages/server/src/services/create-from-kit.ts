/**
 * Makes a new service of one that another installation has in its repository, for example of
 * production in staging. The repository is only read, and everything in it is input.
 */
import {
  ApiError,
  type CreateFromKitBody,
  DEFAULT_SIZE,
  type KitService,
  STORAGE_GB,
  typeOfAddons,
} from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import pLimit from 'p-limit';
import { parseServices, type BackedUpService } from '../domain/repository/backed-up-service.ts';
import { lifetimeOfNew } from '../domain/service/lifetime.ts';
import { locationOf } from '../domain/repository/storage.ts';
import type { ForeignBackup } from '../engine/off-machine.ts';
import type { Region } from '../engine/regions.ts';
import type { ForeignData, Recovery } from '../engine/spec.ts';
import { newId, newPassword } from '../lib/ids.ts';
import { parseMoment } from '../lib/moment.ts';
import { scramVerifier } from '../lib/scram.ts';
import { getObject } from '../repository/objects.ts';
import { forForeign, whyNotServed } from '../repository/pgbackrest.ts';
import {
  CONTROL_OBJECT,
  RepositoryProblem,
  type PgBackRest,
  type Repository,
} from '../repository/repository.ts';
import { makeDue } from '../store/claims.ts';
import { insertServiceAtEndpoint } from '../store/new-services.ts';
import { beginOperation } from '../store/operations.ts';
import { changeService } from '../store/services.ts';
import { type Caller, type DryRunNotes, makeChange, type Outcome } from './change.ts';
import { refuseFullDisk, refuseLargeQuota, sizeOrRefuse } from './room.ts';
import { refuseSecondProject } from './single-project.ts';
import { refuseWithoutPort } from './endpoints.ts';
import { refuseMissingLibraries } from './extensions.ts';
import { keepWithinKey } from './lifetimes.ts';
import { keepWithinLimits, weightOf } from './limits.ts';
import { refuseUsedName, refuseWithoutAnswer, storageOrRefuse } from './service-rules.ts';
import { keepNotCarried } from './not-carried.ts';
import { regionOrRefuse } from './regions.ts';
import { refusing, type RepositoryContext, repositoryOf, sealRepository } from './repositories.ts';

/** More than the compressed data of any control plane takes. */
const CONTROL_MAX_BYTES = 200e6;
/** The most services whose backups a dry run looks up, and at the same time. */
const [DESCRIBED_MAX, LOOKED_UP_AT_A_TIME] = [100, 4];
/** The most names in a message. */
const NAMES_SAID = 20;

/** A moment whose state comes back: as PostgreSQL reads it, and in ms; null: the newest. */
type Target = { text: string; ms: number } | null;

/**
 * Creates a service with the data of one in the repository of a recovery kit. A dry run that names
 * none says which services there are, and what would come back of each. The initial password is in
 * this answer only.
 */
export async function createServiceFromKit(
  context: RepositoryContext,
  caller: Caller,
  body: CreateFromKitBody,
): Promise<Outcome> {
  const { regions, repositories, store } = context;
  const { region, alias } = regionOrRefuse(regions, body.region_code);
  const repository = repositoryOfKit(body);
  const target = targetOrRefuse(body.target_time);
  const program = repositories.program();
  refuseRegion(region);
  const services = await refusing(() => readServices(program, repository));
  const sealed = sealRepository(repositories.sealer, repository).toString('base64');
  const find = (service: BackedUpService) => findBackup(region, service, sealed, target);
  const describe = (some: readonly BackedUpService[]) =>
    describeServices(repository, some, target, find);
  if (body.service === undefined && caller.dryRun) {
    const described = await describe(services);
    return makeChange(store, caller, async () => ({ operationId: null, ...described }));
  }
  const service = serviceOrRefuse(services, body.service);
  const note = caller.dryRun ? { note: (await describe([service])).note } : {};
  const found = await refusing(() => find(service));
  const { of, backup } = backupOrRefuse(service, found, target);
  const { addons, preload } = service;
  await refuseUnsupported(region, program, service, backup.major);
  const size = sizeOrRefuse(region, caller, body, { fallback: DEFAULT_SIZE, sharedAllowed: true });
  await refuseLargeQuota(region, caller, body.storage_gb);
  const storageGb = storageOrRefuse(
    body.storage_gb ?? storageLike(service),
    backup.dataBytes / 1e9,
  );
  await refuseFullDisk(region, 'services');
  const initialPassword = newPassword();
  const verifier = await scramVerifier(initialPassword);
  const recovery: Recovery = { id: newId(), repository: null, at: target?.text ?? null, of };
  const environment = body.environment_tag ?? 'DEV';
  const change = {
    project_id: caller.projectId,
    region_alias: alias,
    name: body.name ?? service.name,
    environment,
    created: new Date(),
    created_by: caller.publicKey,
    ...lifetimeOfNew(caller, {}, environment),
    preload: [...preload],
    storage_gb: storageGb,
    first_verifier: verifier,
    recovery,
  };
  return makeChange(store, caller, async (tx) => {
    await refuseWithoutAnswer(region);
    await refuseSecondProject(tx, regions, region, caller.projectId);
    await refuseUsedName(tx, caller.projectId, change.name, body.unique_name);
    await keepWithinKey(tx, caller);
    await keepWithinLimits(tx, caller.projectId, { services: 1, ...weightOf(size, 1) });
    const made = { addons, major: backup.major, size, origin: null };
    const fresh = await refuseWithoutPort(insertServiceAtEndpoint(tx, region, made));
    const subject = { id: fresh.id, project_id: caller.projectId };
    const operation = await beginOperation(tx, subject, 'create', caller, null);
    await keepNotCarried(tx, operation.id, { kind: 'createFromKit' }, null);
    const row = await changeService(tx, fresh, change, operation);
    await makeDue(tx, row.id);
    return { doc: row.doc, operationId: operation.id, initialPassword, ...note };
  });
}

/** The repository of a recovery kit, which has no name here: messages say where it is. */
function repositoryOfKit({ kit }: CreateFromKitBody): Repository {
  const repository = repositoryOf(kit);
  return { ...repository, name: locationOf(repository.storage) };
}

function targetOrRefuse(text: string | undefined): Target {
  if (text === undefined) return null;
  const moment = parseMoment(text);
  if (moment !== null && moment.ms <= Date.now()) return moment;
  throw new ApiError(
    'INVALID_REQUEST',
    `target_time: found ${JSON.stringify(text)}; it is a date-time with an offset that is over, ` +
      'like 2026-01-31T12:00:00.123456Z',
  );
}

/**
 * A data directory that was written elsewhere can have any superusers, and these run programs as
 * the user of the server. So that user must have no service but this one.
 */
function refuseRegion({ engine }: Region): void {
  const { offMachine, isolation } = engine.capabilities;
  if ('missing' in offMachine) throw new ApiError('UNAVAILABLE_HERE', `kit: ${offMachine.missing}`);
  if (!isolation.isolated)
    throw new ApiError(
      'UNAVAILABLE_HERE',
      `kit: data of another installation can make the server run programs, and ` +
        `${isolation.note}. Run Howdah as root, so that each service has an operating system ` +
        'user of its own',
    );
}

/** The services in the data of the control plane that the other installation has sent last. */
async function readServices(
  program: PgBackRest,
  repository: Repository,
): Promise<BackedUpService[]> {
  const reader = await forForeign(program);
  const contents = await getObject(reader, repository, CONTROL_OBJECT, CONTROL_MAX_BYTES);
  if (contents === null)
    throw new RepositoryProblem(
      `kit: ${repository.name} has no data of a control plane: ` +
        'the kit is of another repository, or its first minute has not passed',
    );
  try {
    return await parseServices(contents);
  } catch (error) {
    const why = messageOf(error);
    throw new RepositoryProblem(
      `kit: the data of the control plane in ${repository.name} cannot be read: ${why}; ` +
        'howdah repo kit prints the kit of the right repository',
    );
  }
}

type Found = { of: ForeignData; backup: ForeignBackup };

/** The backup that a service comes back from; null: there is none. @throws RepositoryProblem */
async function findBackup(
  { engine }: Region,
  { stanzas }: BackedUpService,
  sealed: string,
  target: Target,
): Promise<Found | null> {
  const { offMachine } = engine;
  if (offMachine === null) return null;
  for (const stanza of stanzas) {
    const of = { stanza, sealed };
    const backup = await offMachine.findForeign(of, target?.ms ?? Infinity);
    if (backup !== null) return { of, backup };
  }
  return null;
}

/** Says for a dry run which services there are, and which moment comes back of each. */
async function describeServices(
  { name }: Repository,
  services: readonly BackedUpService[],
  target: Target,
  find: (service: BackedUpService) => Promise<Found | null>,
): Promise<Required<DryRunNotes>> {
  const limit = pLimit(LOOKED_UP_AT_A_TIME);
  const describe = async (service: BackedUpService): Promise<KitService> => {
    const { id: service_id, name: itsName } = service;
    const found = await find(service).catch((error: unknown) => {
      if (!(error instanceof RepositoryProblem)) throw error;
      return `cannot be read: ${error.message}`;
    });
    const isFound = found !== null && typeof found !== 'string';
    const state = isFound ? describeBackup(found.backup, target) : (found ?? whyNone(target));
    return { service_id, name: itsName, can_come_back: isFound, state };
  };
  const some = services.slice(0, DESCRIBED_MAX);
  const described = await Promise.all(some.map((service) => limit(() => describe(service))));
  const lines = described.map((one) => `${one.name} (${one.service_id}) ${one.state}`);
  const left = services.length - described.length;
  const more = left > 0 ? [`and ${left} more`] : [];
  const note = [`in ${name}:`, ...(lines.length > 0 ? lines : ['no service']), ...more].join('\n');
  return { note, services: described };
}

function describeBackup({ takenMs, major, dataBytes }: ForeignBackup, target: Target): string {
  const [taken, megabytes] = [new Date(takenMs).toISOString(), Math.ceil(dataBytes / 1e6)];
  const moment =
    target === null
      ? `as of ${taken} and with the WAL after it`
      : `as of ${target.text}, by the backup of ${taken} and the WAL after it`;
  return `comes back ${moment}: ${megabytes} MB, PostgreSQL ${major}`;
}

const labelOf = ({ id, name }: BackedUpService): string => `${name} (${id})`;

const whyNone = (target: Target): string =>
  target === null ? 'has no backup yet' : `has no backup from before ${target.text}`;

/** A service by its id, or by a name that no other one has. */
function serviceOrRefuse(
  services: readonly BackedUpService[],
  wanted: string | undefined,
): BackedUpService {
  const byName = services.filter(({ name }) => name === wanted);
  const [found, another] = [...services.filter(({ id }) => id === wanted), ...byName];
  if (found !== undefined && (found.id === wanted || another === undefined)) return found;
  const possible = (byName.length > 0 ? byName : services).map(labelOf);
  const some = possible.slice(0, NAMES_SAID).join(', ');
  const more = possible.length > NAMES_SAID ? ` and ${possible.length - NAMES_SAID} more` : '';
  const asked = wanted === undefined ? 'it is missing' : `found ${JSON.stringify(wanted)}`;
  const rule =
    byName.length > 0 ? 'several have that name, send the id of one' : 'the repository has';
  throw new ApiError('INVALID_REQUEST', `service: ${asked}; ${rule}: ${some || 'none'}${more}`);
}

function backupOrRefuse(service: BackedUpService, found: Found | null, target: Target): Found {
  if (found !== null) return found;
  throw new ApiError(
    'INVALID_REQUEST',
    `service: ${labelOf(service)} ${whyNone(target)}; a dry run lists the others`,
  );
}

/** Refuses data that no PostgreSQL here can run. */
async function refuseUnsupported(
  { engine }: Region,
  program: PgBackRest,
  { addons, preload }: BackedUpService,
  major: number,
): Promise<void> {
  const unserved = whyNotServed(program, major);
  if (unserved !== null) throw new ApiError('UNAVAILABLE_HERE', `service: ${unserved}`);
  const capability = engine.lifecycle.supports(addons, major);
  if ('missing' in capability)
    throw new ApiError('UNAVAILABLE_HERE', `${typeOfAddons(addons)}: ${capability.missing}`);
  await refuseMissingLibraries({ engine }, preload, major, 'service');
}

/** The quota that a service has there, as far as one may have it here. */
const storageLike = ({ storageGb }: BackedUpService): number =>
  Math.min(STORAGE_GB.max, Math.max(STORAGE_GB.min, Math.ceil(storageGb)));
