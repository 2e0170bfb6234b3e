import { expect, test } from 'vitest';
import { canonicalJson } from './canonical.ts';
import { attachedTo, certificateFacts, certificatePage } from './certificate-page.ts';
import type { SignedCertificate } from './schemas/certificates.ts';
import { CERTIFICATE_FORMAT } from './values.ts';

const AT = '2026-01-31T12:00:00.000Z';
const SIGNED: SignedCertificate = {
  certificate: {
    format: CERTIFICATE_FORMAT,
    certificate_id: 'c5oh4ut1zz',
    key_id: '5e'.repeat(32),
    issued_at: AT,
    howdah_version: '0.1.0',
    project_id: 'n765kku04j',
    region_code: 'local',
    service_id: 'linltu4hxx',
    service_name: 'Bestellungen (größer) \\ 注文',
    operation_id: '01jd3k7w0c',
    backup: { place: 'snapshot', repository: null, label: 's2', taken: AT },
    postgresql_version: null,
    began: AT,
    ended: AT,
    recovery_point: null,
    rpo_seconds: null,
    rto_seconds: 2.5,
    contents: { databases: 2, tables: 5, rows: 9, uncounted_tables: 1 },
    pages: null,
    checks: [{ name: 'replay WAL', detail: 'x'.repeat(500) }],
  },
  signature: '0a'.repeat(64),
};

test('a value has one text, whatever the order of its members', () => {
  expect(canonicalJson({ b: [1, -0, 1e21, 0.5], a: { é: 'ü\u0007"', d: null }, B: true })).toBe(
    '{"B":true,"a":{"d":null,"é":"ü\\u0007\\""},"b":[1,0,1e+21,0.5]}',
  );
  // By UTF-16 units, as RFC 8785 has it: a surrogate is before U+FB33.
  expect(canonicalJson({ '\ufb33': 1, '\u{1f600}': 2 })).toBe('{"\u{1f600}":2,"\ufb33":1}');
  for (const value of [undefined, Number.NaN, Number.POSITIVE_INFINITY, [() => 1]])
    expect(() => canonicalJson(value)).toThrow('no value of JSON');
});

test('a certificate says which measurements are missing', () => {
  const facts = new Map(certificateFacts(SIGNED));
  expect(facts.get('RPO')).toBe('not known');
  expect(facts.get('contents')).toBe(
    '9 rows in 4 tables of 2 databases; tables that were not counted: 1',
  );
  expect(facts.get('page checksums')).toBe('not verified');
  expect(facts.get('PostgreSQL')).toBe('version not known');
});

test('a page is a PDF with the signed document, and always the same', () => {
  const text = canonicalJson(SIGNED);
  const page = certificatePage(text);
  expect(certificatePage(text)).toEqual(page);
  expect(Buffer.from(attachedTo(page) ?? []).toString('utf8')).toBe(text);
  const shown = Buffer.from(page).toString('latin1');
  expect(shown).toContain(String.raw`Bestellungen \(größer\) \\ \\u{6ce8}\\u{6587}`);
  // Every offset of the table is that of its object.
  const xref = Number(/startxref\n(\d+)\n/.exec(shown)?.[1]);
  expect(shown.slice(xref, xref + 5)).toBe('xref\n');
  const offsets = [...shown.slice(xref).matchAll(/^(\d{10}) 00000 n $/gm)].map(([, at]) => at);
  expect(offsets).toHaveLength(6);
  for (const [index, at] of offsets.entries())
    expect(shown.slice(Number(at))).toMatch(new RegExp(`^${index + 1} 0 obj\n`));
  expect(attachedTo(Buffer.from('%PDF-1.7\n'))).toBeNull();
});
