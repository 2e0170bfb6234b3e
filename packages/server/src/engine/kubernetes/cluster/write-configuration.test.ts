import { expect, test } from 'vitest';
import { decide } from './decide.ts';
import { PAUSED, REACHED, SPEC, up } from './decide.testing.ts';
import { desiredOf, readDesired, writeDesired } from './desired-state.ts';

test('a service of an earlier release gets the roles that it lacks, once it must run', () => {
  const { reader, control, ...older } = desiredOf(SPEC);
  expect({ reader, control }).toEqual({ reader: true, control: true });
  for (const found of [older, { ...older, reader: true } as const])
    expect(
      decide(SPEC, up(SPEC, { desired: readDesired(writeDesired(found)) }), REACHED),
    ).toMatchObject({
      name: 'write configuration',
      detail: 'the roles of the control plane',
      awaits: true,
    });
  const paused = up(PAUSED, { desired: { ...older, running: false }, hibernated: true });
  expect(decide(PAUSED, paused, REACHED).kind).toBe('settled');
});

test('other networks are written without a restart, and once a service must run', () => {
  const limited = { ...SPEC, allowedNetworks: ['192.0.2.0/24'] };
  expect(decide(limited, up(SPEC), REACHED)).toMatchObject({
    name: 'write configuration',
    detail: 'allowed networks: 1',
    awaits: true,
    desired: { networks: ['192.0.2.0/24'] },
  });
  expect(decide(SPEC, up(limited), REACHED)).toMatchObject({
    name: 'write configuration',
    detail: 'all networks are allowed',
  });
  const desired = { ...desiredOf(SPEC), running: false };
  const paused = up(PAUSED, { desired, hibernated: true });
  expect(decide({ ...limited, power: 'paused' }, paused, REACHED).kind).toBe('settled');
});

test('the pooler of a service with limited networks is let in, and only while there is one', () => {
  const limited = { ...SPEC, allowedNetworks: ['192.0.2.0/24'] };
  const pooled = { ...limited, pooler: { port: 30_002 } };
  expect(decide(pooled, up(limited), REACHED)).toMatchObject({
    name: 'write configuration',
    detail: 'its pooler may connect',
    desired: { pooled: true },
  });
  expect(decide(limited, up(pooled), REACHED)).toMatchObject({
    name: 'write configuration',
    detail: 'no pooler may connect',
  });
  expect(desiredOf({ ...pooled, allowedNetworks: null })).not.toHaveProperty('pooled');
});
