/** The storage of a repository, from the fields of a request or of a recovery kit. */
import { ApiError, type CreateRepositoryBody, type RepositoryType } from '@howdah/contract';
import type { Storage } from '../../repository/repository.ts';

/** The fields that describe a storage. */
export type StorageFields = Omit<
  CreateRepositoryBody,
  'name' | 'retention_days' | 'take_over' | 'passphrase'
>;

type Field = Exclude<keyof StorageFields, 'type'>;

/** The fields that a type of storage has: those that it needs, and those that it may have. */
const FIELDS: Record<RepositoryType, { needs: readonly Field[]; may: readonly Field[] }> = {
  s3: {
    needs: ['endpoint', 'bucket', 'region', 'key_id', 'key'],
    may: ['path', 'uri_style', 'ca_pem'],
  },
  azure: {
    needs: ['account', 'container', 'key'],
    may: ['path', 'key_type', 'endpoint', 'uri_style', 'ca_pem'],
  },
  gcs: { needs: ['bucket', 'key'], may: ['path', 'endpoint', 'ca_pem'] },
  sftp: { needs: ['host', 'user', 'private_key', 'host_fingerprint'], may: ['path', 'port'] },
  path: { needs: ['path'], may: [] },
};

/** Where backups are in a bucket, a container or on an SFTP server. */
const DEFAULT_PATH = '/howdah';

/**
 * The storage that the fields describe.
 *
 * @throws ApiError INVALID_REQUEST for a missing field, one of another type, or a path that is none
 */
export function storageOf(fields: StorageFields): Storage {
  refuseOthers(fields);
  const of = (field: Field): string => {
    const value = fields[field];
    if (value === undefined)
      throw invalid(field, `a repository of the type ${fields.type} needs it`);
    return String(value);
  };
  const prefix = pathOf(fields.path ?? DEFAULT_PATH);
  const ca = fields.ca_pem ?? null;
  const uriStyle = fields.uri_style ?? 'host';
  const endpoint = fields.endpoint === undefined ? null : endpointOf(fields.endpoint);
  switch (fields.type) {
    case 's3':
      return {
        type: 's3',
        endpoint: endpointOf(of('endpoint')),
        bucket: of('bucket'),
        region: of('region'),
        keyId: of('key_id'),
        key: of('key'),
        uriStyle,
        ca,
        prefix,
      };
    case 'azure':
      refuseAccountIn(endpoint, uriStyle, of('account'));
      return {
        type: 'azure',
        account: of('account'),
        container: of('container'),
        key: of('key'),
        keyType: fields.key_type ?? 'shared',
        endpoint,
        uriStyle,
        ca,
        prefix,
      };
    case 'gcs':
      return { type: 'gcs', bucket: of('bucket'), key: of('key'), endpoint, ca, prefix };
    case 'sftp':
      return {
        type: 'sftp',
        host: of('host'),
        port: fields.port ?? 22,
        user: of('user'),
        privateKey: of('private_key'),
        hostFingerprint: of('host_fingerprint'),
        directory: prefix,
      };
    case 'path':
      return { type: 'path', directory: pathOf(of('path')) };
  }
}

function endpointOf(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url?.protocol !== 'https:' || `${url.origin}/` !== url.href)
    throw invalid('endpoint', 'must be https://HOST or https://HOST:PORT');
  return url.origin;
}

/** pgBackRest puts the account before the host by itself. */
function refuseAccountIn(
  endpoint: string | null,
  uriStyle: 'host' | 'path',
  account: string,
): void {
  if (endpoint === null || uriStyle === 'path') return;
  const { hostname } = new URL(endpoint);
  if (!hostname.startsWith(`${account}.`)) return;
  const without = endpoint.replace(`${account}.`, '');
  throw invalid('endpoint', `must not have the account in its host name: ${without}`);
}

function refuseOthers(fields: StorageFields): void {
  const { needs, may } = FIELDS[fields.type];
  for (const [field, value] of Object.entries(fields)) {
    if (value === undefined || field === 'type') continue;
    if (![...needs, ...may].some((known) => known === field))
      throw invalid(
        field,
        `a repository of the type ${fields.type} has ${[...needs, ...may].join(', ')} only`,
      );
  }
}

function pathOf(path: string): string {
  if (!path.startsWith('/') || path.split('/').includes('..'))
    throw invalid('path', 'must begin with / and not contain ..');
  return path;
}

const invalid = (field: string, problem: string): ApiError =>
  new ApiError('INVALID_REQUEST', `${field}: ${problem}`);

/** The fields that {@link storageOf} makes the same storage of. */
export function fieldsOf(storage: Storage): StorageFields {
  switch (storage.type) {
    case 's3': {
      const { type, bucket, region, keyId, key, uriStyle, prefix: path } = storage;
      const fields = { type, bucket, region, key, path, uri_style: uriStyle } as const;
      return { ...fields, key_id: keyId, ...serverFields(storage) };
    }
    case 'azure': {
      const { type, account, container, key, keyType, uriStyle, prefix: path } = storage;
      const fields = { type, account, container, key, path, uri_style: uriStyle } as const;
      return { ...fields, key_type: keyType, ...serverFields(storage) };
    }
    case 'gcs': {
      const { type, bucket, key, prefix: path } = storage;
      return { type, bucket, key, path, ...serverFields(storage) };
    }
    case 'path':
      return { type: 'path', path: storage.directory };
    case 'sftp': {
      const { type, host, port, user, privateKey, hostFingerprint, directory: path } = storage;
      const fields = { type, host, port, user, path } as const;
      return { ...fields, private_key: privateKey, host_fingerprint: hostFingerprint };
    }
  }
}

function serverFields({ endpoint, ca }: { endpoint: string | null; ca: string | null }) {
  return {
    ...(endpoint === null ? {} : { endpoint }),
    ...(ca === null ? {} : { ca_pem: ca }),
  };
}

/** Where a storage is, for people: without credentials. */
export function locationOf(storage: Storage): string {
  switch (storage.type) {
    case 's3':
      return `s3://${storage.bucket}${storage.prefix} at ${storage.endpoint}`;
    case 'azure':
      return `azure://${storage.account}/${storage.container}${storage.prefix}${at(storage)}`;
    case 'gcs':
      return `gs://${storage.bucket}${storage.prefix}${at(storage)}`;
    case 'sftp':
      return `sftp://${storage.user}@${storage.host}:${storage.port}${storage.directory}`;
    case 'path':
      return storage.directory;
  }
}

const at = ({ endpoint }: { endpoint: string | null }): string =>
  endpoint === null ? '' : ` at ${endpoint}`;
