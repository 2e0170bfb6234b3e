/** The capabilities of root: those that Howdah cannot do without, and what the others are for. */
import type { Finding } from '@howdah/contract';
import type { Capability, CapabilitySet } from '../../../lib/kernel-capabilities.ts';

/** Root changes owners, reads files of all users, and starts and ends their processes. */
const REQUIRED = [
  'CAP_CHOWN',
  'CAP_DAC_OVERRIDE',
  'CAP_FOWNER',
  'CAP_KILL',
  'CAP_SETGID',
  'CAP_SETUID',
] as const satisfies readonly Capability[];

/** The others, and the effect of their absence in words. */
const USEFUL: readonly { name: Capability; without: string }[] = [
  {
    name: 'CAP_SYS_ADMIN',
    without:
      'no namespaces, so that all services run as one user, which can read all their files; ' +
      'no data volume',
  },
  {
    name: 'CAP_NET_ADMIN',
    without: 'no VPC that is a network of its own; services can open connections',
  },
  {
    name: 'CAP_SYS_PTRACE',
    without: 'the memory of a service is measured without shared pages',
  },
  { name: 'CAP_SETPCAP', without: 'programs keep a bounding set that is of no use to them' },
];

/** Why root cannot run Howdah here, and how it can; null: it can. */
export function whyRootCannot(held: CapabilitySet): string | null {
  const missing = REQUIRED.filter((name) => !held.has(name));
  return missing.length === 0
    ? null
    : `root has no ${missing.join(', ')} here, without which servers cannot run as users of ` +
        `their own: start the container with ${addingOf(missing)}, or start Howdah as a user`;
}

/** The capabilities that a container has taken from root, for `howdah doctor`. */
export function capabilitiesFinding(held: CapabilitySet): Finding {
  const what = 'capabilities';
  const why = whyRootCannot(held);
  if (why !== null) return { what, state: 'missing', found: 'root cannot run Howdah', remedy: why };
  const missing = USEFUL.filter(({ name }) => !held.has(name));
  if (missing.length === 0) return { what, state: 'ok', found: 'root has all that Howdah uses' };
  const found = missing.map(({ name, without }) => `${name} (${without})`).join('; ');
  const remedy = `in a container: docker run ${addingOf(missing.map(({ name }) => name))}`;
  return { what, state: 'note', found: `root has no ${found}`, remedy };
}

const addingOf = (names: readonly string[]): string =>
  names.map((name) => `--cap-add ${name.slice('CAP_'.length)}`).join(' ');
