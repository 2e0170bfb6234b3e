import { expect, test } from 'vitest';
import { networkRules, networksVersion, trafficPolicy } from './rules.ts';

test('without an allow list only TLS is required', () => {
  expect(networkRules(null, false)).toEqual(['hostnossl all all all reject']);
  expect(trafficPolicy(null)).toBe('Cluster');
});

test('an allow list lets its networks in, the control plane, and nobody else', () => {
  const rules = networkRules(['10.1.0.0/16'], false);
  expect(rules[0]).toBe('hostnossl all all all reject');
  expect(rules).toContain('hostssl all all 10.1.0.0/16 scram-sha-256');
  expect(rules.filter((rule) => rule.includes(' all scram'))).toEqual([
    'hostssl all howdah_reader,howdah_control all scram-sha-256',
  ]);
  // The operator's last rule admits everybody with a password.
  expect(rules.at(-1)).toBe('host all all all reject');
  expect(trafficPolicy(['10.1.0.0/16'])).toBe('Local');
});

test('a pooler comes from any address, with a certificate of the Cluster', () => {
  const rules = networkRules(['10.1.0.0/16'], true);
  expect(rules.filter((rule) => rule.includes('clientcert=verify-ca'))).toHaveLength(1);
  expect(rules.at(-1)).toBe('host all all all reject');
});

test('rules that differ have versions that differ', () => {
  const versions = [
    networksVersion(null, false),
    networksVersion(['10.1.0.0/16'], false),
    networksVersion(['10.1.0.0/16'], true),
    networksVersion(['10.2.0.0/16'], false),
  ];
  expect(new Set(versions).size).toBe(versions.length);
});
