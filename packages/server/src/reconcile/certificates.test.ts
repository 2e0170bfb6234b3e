import { createPublicKey, verify } from 'node:crypto';
import { canonicalJson, SignedCertificateSchema, RestoreCertificateSchema } from '@howdah/contract';
import { Value } from 'typebox/value';
import { expect, test } from 'vitest';
import { verifiedOf, type Measured } from '../engine/restored-backup.ts';
import { keyIdOf, makeSigningKey } from '../lib/signing.ts';
import { certify } from './certificates.ts';

const AT = '2026-01-31T12:00:00.000Z';
const MEASURED: Measured = {
  backup: { place: 'snapshot', repository: null, label: 's1', taken: AT },
  began: AT,
  postgresql_version: '17.6',
  rpo_seconds: 0,
  contents: null,
  pages: { pages: 7, files: 3 },
};
const VERIFICATION = {
  at: AT,
  succeeded: true,
  recovery_seconds: 1.5,
  recovery_point: AT,
  checks: [{ name: 'restore snapshot', succeeded: true, detail: 'done' }],
};
const SERVICE = {
  id: 'linltu4hxx',
  name: 'orders',
  project_id: 'n765kku04j',
  region_code: 'local',
};

test('measurements are signed with a key that its public half names', () => {
  const key = makeSigningKey();
  expect(keyIdOf(key.publicPem)).toBe(key.id);
  const { restored } = verifiedOf(VERIFICATION, MEASURED);
  if (restored === null) throw new Error('nothing was restored');
  const { certificate, signature } = certify(key, 'operation', SERVICE, restored);
  expect(certificate).toMatchObject({ ...MEASURED, key_id: key.id, rto_seconds: 1.5, ended: AT });
  const bytes = Buffer.from(canonicalJson(certificate));
  const publicKey = createPublicKey(key.publicPem);
  expect(verify(null, bytes, publicKey, Buffer.from(signature, 'hex'))).toBe(true);
  expect(Value.Check(RestoreCertificateSchema, certificate)).toBe(true);
  expect(Object.keys(SignedCertificateSchema.properties)).toEqual(['certificate', 'signature']);
});

test('a verification that failed restored nothing that a certificate could name', () => {
  const failed = { ...VERIFICATION, succeeded: false, problem: 'replay WAL: it ends too early' };
  expect(verifiedOf(failed, MEASURED).restored).toBeNull();
});
