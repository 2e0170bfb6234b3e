/**
 * The stopped, ready-made cluster that services are cloned from, one for each installation and set
 * of extensions: roles, database and extensions are in it already, so that a create runs no initdb
 * (7 to 9 times the whole create). Those with extensions are clones themselves, of the one without.
 */
import { basename, join } from 'node:path';
import type { AddonExtension } from '@howdah/contract';
import { cloneTree, makeCloneable, removeTree } from '../host/clone.ts';
import { assertSpaceFor } from '../host/space.ts';
import { addExtensions, fillPlainTemplate } from '../../postgres/contents/contents.ts';
import { configFiles } from './files.ts';
import { CONTROL_ROLE } from '../../postgres/roles.ts';
import { flushFileSystem } from '../host/flush.ts';
import { writeSystemIdentifier } from '../../postgres/data/identity.ts';
import type { Installation } from './installations.ts';
import { instancePaths, type InstancePaths } from '../host/layout.ts';
import type { Machine } from '../host/machine-record.ts';
import { localeOf } from '../../../domain/postgres/settings.ts';
import { isErrno } from '../../../lib/processes.ts';
import { writeText } from '../../../lib/untrusted-files.ts';
import { chown, readFile, rename, writeFile } from '../host/root-files.ts';
import { run } from '../../../lib/run.ts';
import { configUsersOf } from '../host/users.ts';
import {
  findServer,
  launch,
  makeInstanceDirectories,
  stopServer,
  waitUntilReady,
  whyItEnded,
  writeConfig,
  PLAIN_START,
} from './server.ts';

/** The bytes that a new template needs: a cluster, its WAL and some slack. */
const TEMPLATE_BYTES = 120e6;

/** Raised when the contents change, so that templates of older releases are recreated. */
const TEMPLATE_EDITION = 5;

export type Template = { name: string; data: string };

/** The templates of this machine; each is made at the first need, once. */
export function createTemplates(machine: Machine) {
  const made = new Map<string, Promise<Template>>();

  const pathsOf = (
    installation: Installation,
    extensions: readonly AddonExtension[],
  ): InstancePaths => {
    // By full version: an initial snapshot is restored from the very template that its service was
    // cloned from.
    const name = [
      installation.version,
      installation.source,
      ...extensions.toSorted(),
      `e${TEMPLATE_EDITION}`,
    ].join('-');
    return instancePaths(join(machine.layout.templates, name));
  };

  const ensure = async (
    installation: Installation,
    extensions: readonly AddonExtension[],
  ): Promise<Template> => {
    const paths = pathsOf(installation, extensions);
    const known = made.get(paths.root);
    if (known !== undefined) return known;
    const plain = extensions.length === 0 ? null : () => ensure(installation, []);
    const making = openOrMake(machine, paths, installation, extensions, plain);
    made.set(paths.root, making);
    // A failure reaches the callers that wait; the next caller tries again.
    making.catch(() => made.delete(paths.root));
    return making;
  };

  /** Whether a template is there already, so that taking it takes no time. */
  const isReady = async (
    installation: Installation,
    extensions: readonly AddonExtension[],
  ): Promise<boolean> =>
    (await readMarker(pathsOf(installation, extensions))) === installation.version;

  return { ensure, isReady };
}
export type Templates = ReturnType<typeof createTemplates>;

/** @param plain the template without extensions, to begin with; null: this is it */
async function openOrMake(
  machine: Machine,
  paths: InstancePaths,
  installation: Installation,
  extensions: readonly AddonExtension[],
  plain: (() => Promise<Template>) | null,
): Promise<Template> {
  if ((await readMarker(paths)) === installation.version) {
    await closeToOthers(paths);
    return { name: basename(paths.root), data: paths.data };
  }
  const begin = plain === null ? null : await plain();
  await removeTree(paths.root, machine.cloneMethod);
  await assertSpaceFor(TEMPLATE_BYTES, machine.layout.templates);
  // Made under another name: what was interrupted is never taken for a template.
  const unfinished = instancePaths(`${paths.root}.new`);
  const running = await findServer(unfinished);
  if (running !== null) await stopServer(machine, running, 'kill', 60_000);
  await removeTree(unfinished.root, machine.cloneMethod);
  await makeInstanceDirectories(machine.owner, unfinished);
  if (begin === null) await initialise(machine, unfinished, installation);
  else await cloneTemplate(machine, begin, unfinished);
  await fillTemplate(machine, unfinished, installation, extensions);
  await flushFileSystem(unfinished.data);
  await closeToOthers(unfinished);
  await rename(unfinished.root, paths.root);
  await writeFile(paths.marker, JSON.stringify({ template: installation.version }), {
    flush: true,
  });
  return { name: basename(paths.root), data: paths.data };
}

/** The template's server has stopped for good: from here on only root reads it. */
async function closeToOthers({ root }: InstancePaths): Promise<void> {
  if (process.getuid?.() === 0) await chown(root, 0, 0);
}

async function cloneTemplate(machine: Machine, from: Template, to: InstancePaths): Promise<void> {
  await cloneTree(from.data, to.data, machine, machine.owner);
  await writeSystemIdentifier(to.data);
}

async function readMarker(paths: InstancePaths): Promise<string | null> {
  try {
    const marker: unknown = JSON.parse(await readFile(paths.marker, 'utf8'));
    return typeof marker === 'object' && marker !== null && 'template' in marker
      ? String(marker.template)
      : null;
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR') || error instanceof SyntaxError) return null;
    throw error;
  }
}

/**
 * The arguments of initdb that decide what a cluster contains. From 17 on PostgreSQL brings a
 * locale provider of its own, whose order does not change with the system's C library.
 */
export const initdbArguments = (major: number): string[] => [
  '--username',
  CONTROL_ROLE,
  '--data-checksums',
  '--encoding=UTF8',
  ...(major >= 17 ? ['--locale-provider=builtin', '--builtin-locale=C.UTF-8'] : []),
  `--locale=${localeOf(major)}`,
];

async function initialise(
  machine: Machine,
  paths: InstancePaths,
  installation: Installation,
): Promise<void> {
  await makeCloneable(paths.data, machine.cloneMethod);
  if (machine.owner !== null) await chown(paths.data, machine.owner.uid, machine.owner.gid);
  await run(
    join(installation.bin, 'initdb'),
    ['--pgdata', paths.data, '--auth=reject', '--no-sync', ...initdbArguments(installation.major)],
    {
      ...(machine.owner === null ? {} : { uid: machine.owner.uid, gid: machine.owner.gid }),
      env: { PATH: '/usr/bin:/bin', LANG: 'C.UTF-8' },
    },
  );
}

/**
 * Starts the cluster without TCP, puts into it what is missing of roles, database and extensions,
 * and stops it cleanly.
 */
async function fillTemplate(
  machine: Machine,
  paths: InstancePaths,
  installation: Installation,
  extensions: readonly AddonExtension[],
): Promise<void> {
  const files = configFiles(
    {
      paths,
      installation,
      extensions,
      size: 'shared',
      storageGb: null,
      listen: null,
      allowedNetworks: null,
    },
    configUsersOf(machine.owner),
  );
  await writeConfig(machine.owner, paths, files);
  const ownSettings = join(paths.data, 'postgresql.auto.conf');
  await writeText(ownSettings, UNFLUSHED, machine.owner);
  const begunMs = Date.now();
  await launch(machine, machine.owner, paths, installation.bin, PLAIN_START);
  const state = await waitUntilReady(paths, 60_000);
  const server = await findServer(paths);
  if (state !== 'ready' || server === null)
    throw new Error(
      `the template for ${installation.name} did not start: ${await whyItEnded(paths, begunMs)}`,
    );
  try {
    const at = { paths, port: 5432, limitMs: STATEMENT_LIMIT_MS };
    if (extensions.length === 0) await fillPlainTemplate(at);
    await addExtensions(at, extensions);
  } finally {
    await stopServer(machine, server, 'fast', 60_000);
  }
  await writeText(ownSettings, '', machine.owner);
}

/**
 * The whole template is flushed at once when its server has stopped: PostgreSQL would flush each of
 * its hundreds of new files.
 */
const UNFLUSHED = 'fsync = off\nfull_page_writes = off\n';

/** Vacuum and extensions' scripts take their time on a slow disk. */
const STATEMENT_LIMIT_MS = 600_000;
