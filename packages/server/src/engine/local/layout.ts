/** Where the local engine keeps what, below its data directory. The one place that knows. */
import { join } from 'node:path';

export type InstancePaths = {
  /** Everything of the instance; made under another name and renamed, so that it is there whole or not at all. */
  root: string;
  /** Our marker: a directory without it is not ours and never touched. */
  marker: string;
  data: string;
  config: string;
  socket: string;
  logs: string;
  /** WAL files that PostgreSQL has archived. */
  archive: string;
  /** One directory a snapshot. */
  snapshots: string;
  /** The pid of what was started: the server, or `unshare` around it. */
  pidFile: string;
  /** What the server said before its log collector ran, and why it could not start. */
  startLog: string;
};

/** The longest path of a Unix socket that Linux takes is 107 bytes; PostgreSQL's file name takes 15 of them. */
const SOCKET_DIRECTORY_MAX_BYTES = 107 - '/.s.PGSQL.65535'.length;

export function instancePaths(root: string): InstancePaths {
  return {
    root,
    marker: join(root, 'howdah.json'),
    data: join(root, 'data'),
    config: join(root, 'config'),
    socket: join(root, 'run'),
    logs: join(root, 'logs'),
    archive: join(root, 'archive'),
    snapshots: join(root, 'snapshots'),
    pidFile: join(root, 'pid'),
    startLog: join(root, 'start.log'),
  };
}

export type Layout = {
  root: string;
  services: string;
  templates: string;
  /** Copies of PostgreSQL that npm brought: a reinstall of npm's packages must not pull the binaries from under running servers. */
  installations: string;
  /** What is being deleted. */
  trash: string;
  /** The metadata database. */
  store: InstancePaths;
  service: (id: string) => InstancePaths;
};

/** @throws Error when the data directory's path is too long for the sockets below it */
export function createLayout(root: string): Layout {
  const services = join(root, 'services');
  const longest = instancePaths(join(services, 'abcdefghij.new')).socket;
  const excess = Buffer.byteLength(longest) - SOCKET_DIRECTORY_MAX_BYTES;
  if (excess > 0) {
    throw new Error(
      `HOWDAH_HOME: its path is ${excess} bytes too long: the Unix sockets below ${root} would exceed the 107 bytes that Linux allows; choose a shorter one`,
    );
  }
  return {
    root,
    services,
    templates: join(root, 'templates'),
    installations: join(root, 'postgres'),
    trash: join(root, 'trash'),
    store: instancePaths(join(root, 'store')),
    service: (id) => instancePaths(join(services, id)),
  };
}
