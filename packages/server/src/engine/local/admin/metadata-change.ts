/** Makes another database the metadata database of an installation. */
import { lookup } from 'node:dns/promises';
import { networkInterfaces } from 'node:os';
import type { ClientConfig } from 'pg';
import { findControl } from '../../../installation.ts';
import {
  findOwnProject,
  nameOf,
  readMetadataRecord,
  recordMetadata,
  type MetadataPlace,
} from '../../../metadata-record.ts';
import { examineContents, problemOfContents, serviceAt } from '../../../store/contents.ts';
import { removeTree } from '../host/clone.ts';
import { prepareMachine } from '../host/machine.ts';
import { ensureStoreRunning, stopStore } from '../postgres/store-instance.ts';
import { createTemplates } from '../postgres/templates.ts';
import { copyControl } from './control-backup.ts';

/** The metadata database of a home in words. @throws Error when there is no installation */
export async function describeMetadata(home: string): Promise<string> {
  const record = await readMetadataRecord(home);
  if (record === null)
    throw new Error(`no metadata database is recorded in ${home}: howdah up records it`);
  return `The metadata database of ${home} is ${nameOf(record.place)}.`;
}

/**
 * The control plane must be stopped. An empty database gets a copy; one that holds the installation
 * already is taken as it is.
 *
 * @returns what was done
 * @throws Error with what is in the way; then the home keeps the metadata database that it has
 */
export async function changeMetadata(home: string, to: MetadataPlace): Promise<string> {
  if ((await findControl(home)) !== null)
    throw new Error(`the control plane of ${home} runs: stop it first (howdah down)`);
  const project = await findOwnProject(home);
  if (project === null) throw new Error(`no installation in ${home}: howdah up makes one`);
  const from = (await readMetadataRecord(home))?.place ?? null;
  const machine = await prepareMachine(home);
  const open = async (place: MetadataPlace): Promise<ClientConfig> =>
    place === null
      ? ensureStoreRunning(machine, createTemplates(machine))
      : { connectionString: place };
  try {
    const target = await open(to);
    const contents = await examineContents(target);
    const problem = problemOfContents(contents, project, true);
    if (problem !== null)
      throw new Error(`${nameOf(to)} cannot be the metadata database of ${home}: ${problem}`);
    const isNew = contents.projects.length === 0;
    if (isNew) {
      const source = await open(from);
      if (to !== null) await refuseOwnService(source, to);
      await copyControl(home, source, target);
    }
    await recordMetadata(home, { place: to, project });
    // A way back would take a copy that is left for the newest state.
    if (isNew && from === null) {
      await stopStore(machine);
      await removeTree(machine.layout.store.root, machine.cloneMethod);
    }
    const now = `The metadata database of ${home} is now ${nameOf(to)}.`;
    return isNew
      ? `${now} It has a copy of the one before, without server logs of removed servers.`
      : `${now} It held the installation already, and nothing was copied.`;
  } finally {
    await stopStore(machine);
  }
}

/** @throws Error for a database that only a running control plane of this home would start */
async function refuseOwnService(source: ClientConfig, to: string): Promise<void> {
  const { hostname, port } = new URL(to);
  const { address } = await lookup(hostname.replaceAll(/[[\]]/g, '') || 'localhost');
  const ours = Object.values(networkInterfaces()).flatMap((all) => all ?? []);
  if (!address.startsWith('127.') && !ours.some((one) => one.address === address)) return;
  const name = await serviceAt(source, Number(port || 5432));
  if (name !== null)
    throw new Error(
      `${nameOf(to)} is the service ${name} of this installation, which does not run before its ` +
        'metadata database does: give a database of another PostgreSQL',
    );
}
