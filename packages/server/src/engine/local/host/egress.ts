/**
 * No outgoing network for services: a server, and any code that a tenant runs in it, answers
 * clients and opens no connections.
 *
 * One nftables table per installation, and one in the network of each VPC, refuses packets of the
 * users of services: TCP that begins a connection (SYN without ACK), and everything that is not
 * TCP. It checks single packets, so it keeps no state and established sessions stay. Gateways run
 * as a user outside of the range: they connect to servers.
 */
import type { Rounds } from '../../../lib/rounds.ts';
import { readlinkSync, statSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { isIPv6 } from 'node:net';
import { messageOf } from '@howdah/contract/thrown';
import { findAllowedIn } from './followed-server.ts';
import { namespacePath } from '../network/listener.ts';
import type { Layout } from './layout.ts';
import { capabilitiesIn } from '../../../lib/kernel-capabilities.ts';
import { readOrNull } from '../../../lib/processes.ts';
import { run } from '../../../lib/run.ts';
import { DEFAULT_UID_RANGE } from '../../../settings.ts';
import type { Isolation } from './users.ts';

/** Whether outgoing connections of services are refused here, or why not and what adds it. */
export type EgressAbility = { refused: boolean; note: string };

/** First and last user of services. */
export type Uids = readonly [number, number];

/**
 * The one connection that a user may begin: that of a copy to the service that it follows. No
 * client can connect to a copy.
 */
export type Allowed = Readonly<{ uid: number; address: string; port: number }>;

export const EGRESS_NOTE =
  'servers and poolers of services connect to nobody: what begins a connection is refused';
const without = (why: string): EgressAbility => ({
  refused: false,
  note: `a server can connect to whatever this machine reaches: ${why}`,
});

/**
 * Tries whether packets can be refused by user, in a private network that ends with the attempt.
 */
export async function probeEgress(): Promise<EgressAbility> {
  if (process.getuid?.() !== 0) return without('refusing that takes root: start Howdah as root');
  try {
    await run('nft', ['--version']);
  } catch {
    return without(
      'refusing that takes the program nft: apt-get install nftables, then restart Howdah',
    );
  }
  try {
    await run('unshare', [
      '--net',
      '--',
      'nft',
      rulesOf('howdah-probe', '/', [70_000, 70_001], []),
    ]);
    return { refused: true, note: EGRESS_NOTE };
  } catch (error) {
    const refused = messageOf(error);
    return without(
      'refusing that takes CAP_NET_ADMIN and a kernel with nf_tables, ' +
        `and this machine refuses: ${refused}`,
    );
  }
}

/**
 * Refuses outgoing connections of these users, in the machine's own network or within another.
 * Replaces the table in one transaction, since another program may have flushed the rules of the
 * machine: a restart of Debian's nftables.service does.
 *
 * @param name of the table; @param home of its installation; @param within a command that runs it
 *   in another network; @param allowed the connections that some of them may begin
 */
export async function refuseEgress(
  name: string,
  home: string,
  uids: Uids,
  within: readonly string[] = [],
  allowed: readonly Allowed[] = [],
): Promise<void> {
  const [program, ...words] = [...within, 'nft', rulesOf(name, home, uids, allowed)] as const;
  await run(program ?? 'nft', words);
}

/**
 * Refuses the outgoing connections of an installation's services for as long as the control plane
 * runs, and after that.
 *
 * @param failed called when the rules cannot be put in place
 * @param findAllowed the connections that copies may begin at this moment
 */
export function createEgress(
  { egress, layout, networkPrefix, isolation }: Guarded,
  rounds: Rounds,
  failed: (error: unknown) => void,
  findAllowed: () => Promise<readonly Allowed[]> = () => findAllowedIn(layout),
) {
  const name = tableOf(networkPrefix);
  const uids = isolation.isolated ? isolation.users.range : DEFAULT_UID_RANGE;
  /**
   * The networks of VPCs that have the rules already, by name: a network that is made again has
   * another inode.
   */
  const done = new Map<string, bigint>();

  /** @throws Error when the rules cannot be put in place */
  const renew = async (): Promise<void> => {
    if (egress.refused) await refuseEgress(name, layout.root, uids, [], await findAllowed());
  };

  // Another program may have flushed the rules; see {@link refuseEgress}.
  const round = rounds.every('egressRules', () => renew().catch(failed));

  /** In the network of a VPC. */
  const refuseIn = async (network: string): Promise<void> => {
    const path = namespacePath(network);
    const { ino } = await stat(path, { bigint: true });
    if (!egress.refused || done.get(network) === ino) return;
    await refuseEgress(name, layout.root, uids, ['nsenter', `--net=${path}`, '--']);
    done.set(network, ino);
  };

  const start = async (): Promise<void> => {
    round.startLater();
    await round.run();
  };

  return { start, renew, refuseIn, close: round.close };
}
export type Egress = ReturnType<typeof createEgress>;

/** The parts of a machine that this module needs. */
type Guarded = {
  egress: EgressAbility;
  layout: Pick<Layout, 'root' | 'copies' | 'copy'>;
  networkPrefix: string;
  isolation: Isolation;
};

/** The table of an installation, named as its cgroup. */
export function tableOf(networkPrefix: string): string {
  return networkPrefix.replace(/-$/, '');
}

/** Removes the table of an installation; that of a VPC goes with its network. */
export async function allowEgress(name: string): Promise<void> {
  if ((await tables()).includes(name)) await run('nft', ['delete', 'table', 'inet', name]);
}

/** Whether the table of an installation is in the machine's own network. */
export async function isEgressRefused(name: string): Promise<boolean> {
  return (await tables()).includes(name);
}

/** The table of any installation on this machine: where its data is, and what the table holds. */
export type Table = { name: string; home: string; text: string };

/**
 * The tables of installations whose paths are ours. Those of a chroot are in the same network;
 * their data is not visible. Changes nothing.
 */
export async function listTables(): Promise<Table[]> {
  const found: Table[] = [];
  for (const name of (await tables()).filter((one) => ANY_NAME.test(one))) {
    const text = await run('nft', ['list', 'table', 'inet', name]).catch(() => '');
    const [, home = '', root = rootId()] =
      /\bcomment "([^"]*?)(?: in (\d+:\d+))?"/.exec(text) ?? [];
    if (text !== '' && root === rootId()) found.push({ name, home, text });
  }
  return found;
}
const ANY_NAME = /^howdah-[0-9a-f]{8}$/;

/** The root directory that we see, by its number: in a chroot it is another. */
function rootId(): string {
  const { dev, ino } = statSync('/');
  return `${dev}:${ino}`;
}

/**
 * The rules that an installation's table lacks while its control plane runs; null: nothing, or that
 * process cannot set one.
 *
 * @param control pid of the control plane; @param uids of the installation's services
 */
export async function findLack(
  name: string,
  control: number,
  uids: readonly number[],
): Promise<string | null> {
  if (process.getuid?.() !== 0 || !(await canFilter(control)) || !(await probeEgress()).refused)
    return null;
  const text = (await tables()).includes(name)
    ? await run('nft', ['list', 'table', 'inet', name]).catch(() => null)
    : null;
  return lackOf(text, uids);
}

/** Whether a process may set rules in the network that we see. */
async function canFilter(pid: number): Promise<boolean> {
  const status = (await readOrNull(`/proc/${pid}/status`)) ?? '';
  if (!capabilitiesIn(status).has('CAP_NET_ADMIN')) return false;
  try {
    return readlinkSync(`/proc/${pid}/ns/net`) === readlinkSync('/proc/self/ns/net');
  } catch {
    return false; // it has ended
  }
}

/**
 * The rules that a table lacks to refuse connections of these users; null: none.
 *
 * @param text as nft lists it; null: there is no table
 */
export function lackOf(text: string | null, uids: readonly number[]): string | null {
  if (text === null) return 'it is missing';
  const rules = text.split('\n').filter((line) => / reject with /.test(line));
  const covers = (rule: string, uid: number): boolean => {
    const [, first, last = first] = /meta skuid (\d+)(?:-(\d+))?/.exec(rule) ?? [];
    return Number(first) <= uid && uid <= Number(last);
  };
  for (const [what, pattern] of REFUSED) {
    const missing = uids.find(
      (uid) => !rules.some((rule) => pattern.test(rule) && covers(rule, uid)),
    );
    if (missing !== undefined) return `it lets user ${missing} ${what}`;
  }
  return null;
}
const REFUSED = [
  ['send what is not TCP', /l4proto != tcp/],
  ['begin connections', /tcp flags .*syn/],
] as const;

/** The tables of the machine's own network. */
async function tables(): Promise<string[]> {
  if (process.getuid?.() !== 0) return [];
  const text = await run('nft', ['list', 'tables', 'inet']).catch(() => '');
  return text.split('\n').flatMap((line) => /^table inet (\S+)$/.exec(line)?.[1] ?? []);
}

/**
 * The packets of copies to their sources. A user of a service cannot set a mark. All installations
 * of a machine refuse the same users, so what one of them allows has to be seen by the others.
 */
const MARK = '0x686f7764';

function rulesOf(
  name: string,
  home: string,
  [first, last]: Uids,
  allowed: readonly Allowed[],
): string {
  const uids = `meta skuid ${first}-${last}`;
  const marks = allowed.map(
    ({ uid, address, port }) =>
      `    meta skuid ${uid} ${isIPv6(address) ? 'ip6' : 'ip'} daddr ${address} ` +
      `tcp dport ${port} meta mark set ${MARK}\n`,
  );
  return `table inet ${name}; delete table inet ${name};
table inet ${name} {
  comment "${home} in ${rootId()}";
  chain copies {
    type filter hook output priority -10; policy accept;
${marks.join('')}  }
  chain output {
    type filter hook output priority 0; policy accept;
    ${uids} meta l4proto != tcp reject with icmpx admin-prohibited
    ${uids} meta mark != ${MARK} tcp flags & (syn | ack) == syn reject with tcp reset
  }
}`;
}
