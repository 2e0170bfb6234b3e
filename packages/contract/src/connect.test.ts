import { expect, test } from 'vitest';
import { CLIENTS, isClientName, programOf, uriOf } from './connect.ts';

const target = { host: '127.0.0.1', port: 5432, ca: '/a b/ca.pem' };

test('the URI quotes a password and a path of any characters', () => {
  const uri = new URL(uriOf(target, 'a/b@c d'));
  expect(decodeURIComponent(uri.password)).toBe('a/b@c d');
  expect(uri.searchParams.get('sslrootcert')).toBe('/a b/ca.pem');
  expect(uriOf({ ...target, host: '::1', ca: null }, null)).toBe(
    'postgres://tsdbadmin@[::1]:5432/tsdb?sslmode=require',
  );
});

test('a program has no password, and verifies the certificate with a CA certificate', () => {
  for (const client of Object.keys(CLIENTS).filter(isClientName)) {
    const program = programOf(client, target, 'secret');
    expect(program.includes('secret')).toBe(client === 'uri' || client === 'psql');
    expect(program).toMatch(/verify-full|ssl: \{ ca: readFileSync/);
    expect(programOf(client, { ...target, ca: null })).toMatch(
      /sslmode=require|rejectUnauthorized: false/,
    );
  }
});
