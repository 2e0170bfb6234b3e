import { expect, test } from 'vitest';
import { capabilitiesIn } from '../../../lib/kernel-capabilities.ts';
import { capabilitiesFinding, whyRootCannot } from './root-privileges.ts';

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
