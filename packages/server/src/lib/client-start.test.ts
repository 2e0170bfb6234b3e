/** How clients begin, at each byte. */
import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { readStart, sslRequest, startError, tlsAlert } from './client-start.ts';

function packet(length: number, code: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeUInt32BE(length, 0);
  bytes.writeUInt32BE(code, 4);
  return bytes;
}

const refused = (why: string) => ({ kind: 'refused', why });

test.each([
  ['a request for TLS', sslRequest(), { kind: 'ssl' }],
  ['a request for GSSAPI', packet(8, 80_877_104), { kind: 'gss' }],
  ['a request to cancel', packet(16, 80_877_102), refused('cancel')],
  ['a request to cancel of PostgreSQL 18', packet(44, 80_877_102), refused('cancel')],
  ['a start without TLS', packet(70, 0x3_0000), refused('no_tls')],
  ['a start of protocol 3.2', packet(70, 0x3_0002), refused('no_tls')],
  ['another protocol', packet(70, 0x2_0000), refused('not_postgresql')],
  ['a wrong length', packet(9, 80_877_103), refused('not_postgresql')],
  ['no length', packet(0, 80_877_103), refused('not_postgresql')],
  ['a start that is too long', packet(10_001, 0x3_0000), refused('not_postgresql')],
])('%s is known at its eighth byte', (_what, bytes, start) => {
  for (let length = 0; length < bytes.length; length += 1)
    expect(readStart(bytes.subarray(0, length))).toEqual({ kind: 'more' });
  expect(readStart(bytes)).toEqual(start);
});

test('TLS and other protocols are known at the first byte', () => {
  expect(readStart(Buffer.from([22]))).toEqual({ kind: 'tls' });
  expect(readStart(Buffer.from('GET'))).toEqual(refused('not_postgresql'));
});

test('any bytes have an answer', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 20 }), (bytes) => {
      expect(['more', 'tls', 'ssl', 'gss', 'refused']).toContain(
        readStart(Buffer.from(bytes)).kind,
      );
    }),
  );
});

test('answers are as long as they say', () => {
  const error = startError('28000', 'TLS is required: é', 'Connect by it.');
  expect(error.readUInt32BE(1)).toBe(error.length - 1);
  expect(error.toString('utf8')).toContain('C28000\0MTLS is required: é\0HConnect by it.\0\0');
  expect(startError('28000', 'no hint').toString('latin1')).toMatch(/\0Mno hint\0\0$/);
  expect([...tlsAlert('unrecognized_name')]).toEqual([21, 3, 3, 0, 2, 2, 112]);
});
