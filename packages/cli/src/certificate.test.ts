import { createHash, generateKeyPairSync, sign, type KeyObject } from 'node:crypto';
import type { RestoreCertificate } from '@howdah/contract';
import { canonicalJson } from '@howdah/contract/canonical';
import { certificatePage } from '@howdah/contract/certificate-page';
import { expect, test } from 'vitest';
import { verifyCertificate } from './certificate.ts';

const AT = '2026-01-31T12:00:00.000Z';

function makeKey() {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const der = publicKey.export({ type: 'spki', format: 'der' });
  const pem = String(publicKey.export({ type: 'spki', format: 'pem' }));
  return { id: createHash('sha256').update(der).digest('hex'), pem, privateKey };
}

const KEY = makeKey();
const OTHER = makeKey();

const CERTIFICATE: RestoreCertificate = {
  format: 'howdah restore certificate 1',
  certificate_id: 'c5oh4ut1zz',
  key_id: KEY.id,
  issued_at: AT,
  howdah_version: '0.1.0',
  project_id: 'n765kku04j',
  region_code: 'local',
  service_id: 'linltu4hxx',
  service_name: 'größer \ufffd',
  operation_id: '01jd3k7w0c',
  backup: { place: 'snapshot', repository: null, label: 's2', taken: AT },
  postgresql_version: '17.6',
  began: AT,
  ended: AT,
  recovery_point: AT,
  rpo_seconds: 0,
  rto_seconds: 2.5,
  contents: { databases: 1, tables: 1, rows: 5000, uncounted_tables: 0 },
  pages: { pages: 1000, files: 300 },
  checks: [{ name: 'replay WAL', detail: 'accepting connections after 2.5 s' }],
};

function signedBy(privateKey: KeyObject, certificate: object, more: object = {}): string {
  const signature = sign(null, Buffer.from(canonicalJson(certificate)), privateKey);
  return canonicalJson({ certificate, signature: signature.toString('hex'), ...more });
}

const TEXT = signedBy(KEY.privateKey, CERTIFICATE);
const PAGE = certificatePage(TEXT);
const verify = (file: Uint8Array | string, keys = KEY.pem) =>
  verifyCertificate(typeof file === 'string' ? Buffer.from(file) : file, keys);

test('a certificate is verified as JSON in any layout, and as a page', () => {
  const pretty = JSON.stringify(JSON.parse(TEXT), null, 2);
  for (const file of [TEXT, `${TEXT}\n`, pretty, PAGE])
    expect(verify(file).certificate).toEqual(CERTIFICATE);
  expect(verify(TEXT, `${OTHER.pem}${KEY.pem}`).certificate).toEqual(CERTIFICATE);
});

test.each([
  ['the document', Buffer.from(TEXT), 1],
  // To make a page again takes a millisecond.
  ['the page', Buffer.from(PAGE), 7],
])('a change of any byte of %s is refused', (_what, file, step) => {
  for (let at = 0; at < file.length; at += step)
    for (const bit of [0x01, 0x20]) {
      const changed = Buffer.from(file);
      changed[at] = (changed[at] ?? 0) ^ bit;
      expect(() => verify(changed), `byte ${at}`).toThrow('not verified: ');
    }
  for (const cut of [0, 1, file.length - 1])
    expect(() => verify(file.subarray(0, cut))).toThrow('not verified: ');
});

test('a page that shows something else than its document is refused', () => {
  const shown = Buffer.from(PAGE).toString('latin1').replace('5000 rows', '9999 rows');
  expect(() => verify(Buffer.from(shown, 'latin1'))).toThrow('its page does not show');
});

test('a certificate of another key is refused, also if it names ours', () => {
  const named = { ...CERTIFICATE, key_id: OTHER.id };
  expect(() => verify(signedBy(OTHER.privateKey, named))).toThrow(`it names the key ${OTHER.id}`);
  expect(() => verify(signedBy(OTHER.privateKey, CERTIFICATE))).toThrow('its signature is wrong');
});

test.each([
  ['{}', 'it is no restore certificate'],
  ['null', 'it is no restore certificate'],
  ['%PDF-1.4\n', 'no certificate of Howdah'],
  ['rows', 'neither JSON nor a PDF'],
  [canonicalJson({ certificate: CERTIFICATE, signature: 'x' }), 'has not the form'],
  [TEXT.replace(/"signature":"[^"]+"/, (found) => found.toUpperCase()), 'has not the form'],
  [signedBy(KEY.privateKey, CERTIFICATE, { rows: 1 }), 'nothing has signed: rows'],
  [signedBy(KEY.privateKey, { ...CERTIFICATE, format: '2' }), 'its format is not known'],
])('%.40s is refused', (text, why) => {
  expect(() => verify(text)).toThrow(why);
});

test('a file without a public key for Ed25519 is an error of its own', () => {
  const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  for (const keys of [
    '',
    KEY.pem.slice(0, 60),
    String(publicKey.export({ type: 'spki', format: 'pem' })),
  ])
    expect(() => verify(TEXT, keys)).toThrow('found no public key for Ed25519');
});
