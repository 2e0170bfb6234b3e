import { expect, test } from 'vitest';
import { fieldsOf, locationOf, storageOf, type StorageFields } from './storage.ts';

const AZURE: StorageFields = { type: 'azure', account: 'acme', container: 'backups', key: 'a2V5' };
const GCS: StorageFields = { type: 'gcs', bucket: 'backups', key: '{}' };
const SERVER = { endpoint: 'https://storage.example.com:9000', ca_pem: 'PEM' };

test.each<StorageFields>([
  AZURE,
  { ...AZURE, ...SERVER, uri_style: 'path', key_type: 'sas', path: '/elsewhere' },
  GCS,
  { ...GCS, ...SERVER },
])('the fields of a storage describe it: $type, endpoint $endpoint', (fields) => {
  const storage = storageOf(fields);
  expect(fieldsOf(storage)).toMatchObject(fields);
  expect(storageOf(fieldsOf(storage))).toEqual(storage);
});

test('a location names its server where it is not the public cloud', () => {
  expect(locationOf(storageOf(AZURE))).toBe('azure://acme/backups/howdah');
  expect(locationOf(storageOf({ ...AZURE, ...SERVER }))).toBe(
    'azure://acme/backups/howdah at https://storage.example.com:9000',
  );
  expect(locationOf(storageOf({ ...GCS, ...SERVER }))).toBe(
    'gs://backups/howdah at https://storage.example.com:9000',
  );
});

test('the account is not in the host name of an endpoint', () => {
  const endpoint = 'https://acme.blob.core.usgovcloudapi.net';
  expect(() => storageOf({ ...AZURE, endpoint })).toThrow(
    'endpoint: must not have the account in its host name: https://blob.core.usgovcloudapi.net',
  );
  expect(storageOf({ ...AZURE, endpoint, uri_style: 'path' })).toMatchObject({ endpoint });
});

test('an endpoint is an address by TLS, of a type that has one', () => {
  for (const endpoint of ['http://host', 'host:9000', 'https://host/path'])
    expect(() => storageOf({ ...GCS, endpoint })).toThrow('endpoint: must be https://HOST');
  expect(() => storageOf({ type: 'path', path: '/mnt', endpoint: 'https://host' })).toThrow(
    'endpoint: a repository of the type path has path only',
  );
});
