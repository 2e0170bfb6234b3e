import { expect, test } from 'vitest';
import { repositoryOptions } from './options.ts';
import { whyNotServed } from './pgbackrest.ts';
import type { Storage } from './repository.ts';

const optionsOf = (storage: Storage) =>
  repositoryOptions({ id: '1', name: 'offsite', storage, passphrase: 'secret' });

const PUBLIC = { endpoint: null, ca: null };
const GCS: Storage = { type: 'gcs', bucket: 'b', key: '{}', prefix: '', ...PUBLIC };
const AZURE: Storage = {
  type: 'azure',
  account: 'a',
  container: 'c',
  key: 'k',
  keyType: 'sas',
  uriStyle: 'host',
  prefix: 'p',
  ...PUBLIC,
};

test('contents are encrypted on this machine, whatever the storage', () => {
  const storages: Storage[] = [{ type: 'path', directory: '/mnt/backups' }, GCS, AZURE];
  for (const storage of storages)
    expect(optionsOf(storage).values).toMatchObject({
      'repo1-cipher-type': 'aes-256-cbc',
      'repo1-cipher-pass': 'secret',
    });
});

test('the port of an S3 endpoint is an option of its own, and so is the authority', () => {
  const storage: Storage = {
    type: 's3',
    endpoint: 'https://s3.example.com:9000',
    bucket: 'b',
    region: 'r',
    keyId: 'id',
    key: 'k',
    uriStyle: 'path',
    ca: 'PEM',
    prefix: '/howdah/',
  };
  const { values, files } = optionsOf(storage);
  expect(values).toMatchObject({
    'repo1-s3-endpoint': 's3.example.com',
    'repo1-storage-port': '9000',
    'repo1-path': '/howdah',
  });
  expect(files).toEqual({ 'repo1-storage-ca-file': 'PEM' });
  expect(optionsOf({ ...storage, endpoint: 'https://s3.example.com', ca: null })).toMatchObject({
    values: expect.not.objectContaining({ 'repo1-storage-port': expect.anything() }),
    files: {},
  });
});

test('Azure and Google Cloud Storage may have another endpoint and authority', () => {
  const other = { endpoint: 'https://storage.example.com:9000', ca: 'PEM' };
  expect(optionsOf({ ...AZURE, ...other, uriStyle: 'path' })).toMatchObject({
    values: {
      'repo1-azure-endpoint': 'storage.example.com',
      'repo1-azure-uri-style': 'path',
      'repo1-storage-port': '9000',
    },
    files: { 'repo1-storage-ca-file': 'PEM' },
  });
  expect(optionsOf({ ...GCS, ...other })).toMatchObject({
    values: { 'repo1-gcs-endpoint': 'storage.example.com:9000' },
    files: { 'repo1-gcs-key': '{}', 'repo1-storage-ca-file': 'PEM' },
  });
  for (const { values, files } of [optionsOf(AZURE), optionsOf(GCS)]) {
    expect(Object.keys(values).filter((name) => name.endsWith('-endpoint'))).toEqual([]);
    expect(Object.keys(files)).not.toContain('repo1-storage-ca-file');
  }
});

test('keys that pgBackRest reads from files are no values', () => {
  const { values, files } = optionsOf({
    type: 'sftp',
    host: 'h',
    port: 22,
    user: 'u',
    privateKey: 'PEM',
    hostFingerprint: 'ab',
    directory: '/backups',
  });
  expect(files).toEqual({ 'repo1-sftp-private-key-file': 'PEM' });
  expect(Object.values(values)).not.toContain('PEM');
});

test.each([
  ['2.45', 17, /pgBackRest 2.45 cannot back up PostgreSQL 17, pgBackRest 2.54 or newer can/],
  ['2.54.2', 18, /2.55 or newer/],
  ['2.55.1', 18, null],
  ['2.59.1', 18, null],
  ['2.60', 19, /no command to write an object.* up to 2.59/],
  ['3.0', 18, /up to 2.59/],
])('pgBackRest %s and PostgreSQL %i', (version, major, expected) => {
  const why = whyNotServed(
    { program: '/usr/bin/pgbackrest', version, user: null, ioTimeoutSeconds: 15 },
    major,
  );
  if (expected === null) expect(why).toBeNull();
  else expect(why).toMatch(expected);
});

test('a missing pgBackRest is said with the command that adds it', () => {
  expect(whyNotServed(null, 17)).toMatch(/apt-get install pgbackrest/);
});
