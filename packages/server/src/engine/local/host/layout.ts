/** Where the local engine keeps what, below its data directory. The one place that knows. */
import { readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { problemOfPath } from '../../../lib/path-characters.ts';
import type { ServerFiles } from '../../postgres/server-files.ts';

export type InstancePaths = ServerFiles & {
  /**
   * Everything of the instance; made under another name and renamed, so that it is there whole or
   * not at all.
   */
  root: string;
  /** Our marker: a directory without it is not ours and never touched. */
  marker: string;
  /** One directory for each snapshot. */
  snapshots: string;
  /** The pid of what was started: the server, or `unshare` around it. */
  pidFile: string;
  /** The server's output before its log collector ran, with the reason if it could not start. */
  startLog: string;
  /** The instance's connection pooler. */
  pooler: DaemonPaths;
};

/** Where a program beside the servers is; see daemon.ts. */
export type DaemonPaths = {
  /**
   * The program's directory, which its own user owns. It is the working directory, by which it is
   * found. Its sockets are there; our files are beside it.
   */
  root: string;
  /** The program's configuration, if that is a file of its own. */
  conf: string;
  pidFile: string;
  /** A pipe that it holds open for as long as it lives. */
  lifeline: string;
  /** The program's output. */
  log: string;
};

export function daemonPaths(root: string): DaemonPaths {
  return {
    root,
    conf: `${root}.conf`,
    pidFile: `${root}.pid`,
    lifeline: `${root}.lifeline`,
    log: `${root}.log`,
  };
}

/**
 * The longest path of a Unix socket that Linux takes is 107 bytes; PostgreSQL's file name takes 15
 * of them. A pooler's is shorter.
 */
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
    pooler: daemonPaths(join(root, 'pooler')),
  };
}

export type Layout = {
  root: string;
  services: string;
  templates: string;
  /** Clones of templates, made ahead. */
  precloned: string;
  /**
   * PostgreSQL that the operator has put or linked there, and copies of what npm brought: a
   * reinstall of npm's packages must not pull the binaries from under running servers.
   */
  installations: string;
  /** Modules of ours, compiled for the PostgreSQL of this machine. */
  modules: string;
  /** Directories that are being deleted. */
  trash: string;
  /** Copies of snapshots that are being verified, by the service's id. */
  scratch: string;
  /** Files on their way to a repository or from it, by the service's id. */
  spool: string;
  /** Copies of services of other regions that move here, by the service's id. */
  copies: string;
  /** Empty mount points: the root of the file system that servers see; see sandbox.ts. */
  rootfs: string;
  /** The metadata database. */
  store: InstancePaths;
  service: (id: string) => InstancePaths;
  /** The copy of a service of another region, which is renamed to the service in the end. */
  copy: (id: string) => InstancePaths;
  /**
   * A server of a service: member 0 is in the service's own directory, others are below it. Archive
   * and snapshots belong to the service.
   */
  member: (id: string, n: number) => InstancePaths;
  /**
   * The file that says which member of a service accepts writes, as the metadata database has it;
   * missing: member 0.
   */
  primaryFile: (id: string) => string;
  /** Data of a service that restores have replaced, by the restore and the number of its server. */
  aside: (id: string) => string;
  /** Which member accepts writes. */
  primaryOf: (id: string) => number;
  /** The gateway before the members of a service. */
  gateway: (id: string) => DaemonPaths;
};

/** By what the monitor, the limits and the audit know a server. */
export function memberKey(id: string, n: number): string {
  return n === 0 ? id : `${id}-${n}`;
}

/** The {@link memberKey} of a server by its directory. */
export function keyOfPaths({ root }: InstancePaths): string {
  const [name, above] = [basename(root), dirname(root)];
  return basename(above) === 'members' ? memberKey(basename(dirname(above)), Number(name)) : name;
}

/** Reads a {@link memberKey}. */
export function partsOfKey(key: string): { id: string; n: number } {
  const [id = '', n = '0'] = key.split('-');
  return { id, n: Number(n) };
}

/** Where installations of PostgreSQL are, beside those of the system. */
export function installationPlaces(root: string): Pick<Layout, 'installations' | 'modules'> {
  return { installations: join(root, 'postgres'), modules: join(root, 'modules') };
}

/**
 * @throws Error when the data directory's path is too long for the sockets below it, or has a
 *   character that a program cannot take
 */
export function createLayout(root: string): Layout {
  const problem = problemOfPath(root);
  if (problem !== null) throw new Error(problem);
  const services = join(root, 'services');
  const longest = instancePaths(join(services, 'abcdefghij', 'members', '10')).socket;
  const excess = Buffer.byteLength(longest) - SOCKET_DIRECTORY_MAX_BYTES;
  if (excess > 0) {
    throw new Error(
      `HOWDAH_HOME: its path is ${excess} bytes too long: ` +
        `the Unix sockets below ${root} would exceed the 107 bytes that Linux allows; ` +
        'choose a shorter one',
    );
  }
  const service = (id: string): InstancePaths => instancePaths(join(services, id));
  const primaryFile = (id: string): string => join(services, id, 'primary');
  return {
    root,
    services,
    templates: join(root, 'templates'),
    precloned: join(root, 'precloned'),
    ...installationPlaces(root),
    trash: join(root, 'trash'),
    scratch: join(root, 'scratch'),
    spool: join(root, 'spool'),
    copies: join(root, 'copies'),
    rootfs: join(root, 'rootfs'),
    store: instancePaths(join(root, 'store')),
    service,
    copy: (id) => instancePaths(join(root, 'copies', id)),
    member: (id, n) => {
      const { root: top, marker, archive, snapshots } = service(id);
      return n === 0
        ? service(id)
        : { ...instancePaths(join(top, 'members', String(n))), marker, archive, snapshots };
    },
    primaryFile,
    aside: (id) => join(services, id, 'aside'),
    primaryOf: (id) => {
      try {
        return Number(readFileSync(primaryFile(id), 'utf8'));
      } catch {
        return 0; // no other was ever promoted
      }
    },
    gateway: (id) => daemonPaths(join(services, id, 'haproxy')),
  };
}
