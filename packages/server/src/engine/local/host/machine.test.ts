import { totalmem } from 'node:os';
import { expect, test, vi } from 'vitest';
import {
  coresOf,
  measureCapacity,
  measureMemory,
  capabilitiesFinding,
  whyRootCannot,
} from './machine.ts';
import { capabilitiesIn } from '../../../lib/kernel-capabilities.ts';

test('a container has the part of the processors that its cgroup allows', () => {
  expect(coresOf('150000', '100000')).toBe(1.5);
  for (const [quota, period] of [
    ['max', '100000'],
    ['-1', '100000'],
    ['', ''],
    ['1', '0'],
  ])
    expect(coresOf(quota, period)).toBeNull();
});

test('this machine has at least a processor, and not more memory than it says', async () => {
  const { cpuMillis, memoryBytes } = await measureCapacity();
  expect(cpuMillis).toBeGreaterThan(0);
  expect(memoryBytes).toBeGreaterThan(0);
  expect(memoryBytes).toBeLessThanOrEqual(totalmem());
});

test('a container has the memory that its cgroup allows', () => {
  const limitBytes = 64 * 1024 ** 2;
  vi.spyOn(process, 'constrainedMemory').mockReturnValue(limitBytes);
  try {
    const { freeMemoryBytes, memoryBytes } = measureMemory();
    expect(memoryBytes).toBe(limitBytes);
    expect(freeMemoryBytes).toBeLessThanOrEqual(limitBytes);
  } finally {
    vi.restoreAllMocks();
  }
});

const held = (digits: string) => capabilitiesIn(`Name:\tnode\nCapEff:\t${digits}\nSeccomp:\t0\n`);
const ALL = held('000001ffffffffff');
/** Those of Docker. */
const CONTAINER = held('00000000a80425fb');

test('a container of Docker runs Howdah, and the doctor names what it lacks', () => {
  expect(whyRootCannot(CONTAINER)).toBeNull();
  const { state, found, remedy } = capabilitiesFinding(CONTAINER);
  expect(state).toBe('note');
  for (const name of ['CAP_SYS_ADMIN', 'CAP_NET_ADMIN', 'CAP_SYS_PTRACE'])
    expect(found).toContain(name);
  expect(found).not.toContain('CAP_SETPCAP');
  expect(remedy).toContain('--cap-add SYS_PTRACE');
});

test('nothing is missing on a machine', () => {
  expect(capabilitiesFinding(ALL).state).toBe('ok');
});

test('root that cannot become another user is refused, with what has to be added', () => {
  const NONE = held('0000000000000000');
  expect(whyRootCannot(NONE)).toContain('--cap-add CHOWN');
  expect(whyRootCannot(NONE)).toContain('CAP_SETUID');
  expect(capabilitiesFinding(NONE).state).toBe('missing');
});
