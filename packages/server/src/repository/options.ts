/** A repository as options of pgBackRest. */
import type { Repository } from './repository.ts';

/** Options by their names, and those whose value is a file, by the content of the file. */
export type Options = {
  values: Record<string, string>;
  files: Record<string, string>;
};

/** Where a repository is, how to get in, and how its contents are encrypted. */
export function repositoryOptions({ storage, passphrase }: Repository): Options {
  const common = { 'repo1-cipher-type': 'aes-256-cbc', 'repo1-cipher-pass': passphrase };
  switch (storage.type) {
    case 's3':
      return {
        values: {
          ...common,
          'repo1-type': 's3',
          'repo1-path': rooted(storage.prefix),
          ...endpointOption('repo1-s3-endpoint', storage.endpoint),
          'repo1-s3-bucket': storage.bucket,
          'repo1-s3-region': storage.region,
          'repo1-s3-key': storage.keyId,
          'repo1-s3-key-secret': storage.key,
          'repo1-s3-uri-style': storage.uriStyle,
        },
        files: authority(storage.ca),
      };
    case 'azure':
      return {
        values: {
          ...common,
          'repo1-type': 'azure',
          'repo1-path': rooted(storage.prefix),
          'repo1-azure-account': storage.account,
          'repo1-azure-container': storage.container,
          'repo1-azure-key': storage.key,
          'repo1-azure-key-type': storage.keyType,
          ...endpointOption('repo1-azure-endpoint', storage.endpoint),
          'repo1-azure-uri-style': storage.uriStyle,
        },
        files: authority(storage.ca),
      };
    case 'gcs':
      return {
        values: {
          ...common,
          'repo1-type': 'gcs',
          'repo1-path': rooted(storage.prefix),
          'repo1-gcs-bucket': storage.bucket,
          // This type has no option for the port.
          ...(storage.endpoint === null
            ? {}
            : { 'repo1-gcs-endpoint': new URL(storage.endpoint).host }),
        },
        files: { 'repo1-gcs-key': storage.key, ...authority(storage.ca) },
      };
    case 'sftp':
      return {
        values: {
          ...common,
          'repo1-type': 'sftp',
          'repo1-path': storage.directory,
          'repo1-sftp-host': storage.host,
          'repo1-sftp-host-port': String(storage.port),
          'repo1-sftp-host-user': storage.user,
          'repo1-sftp-host-key-check-type': 'fingerprint',
          'repo1-sftp-host-key-hash-type': 'sha256',
          'repo1-sftp-host-fingerprint': storage.hostFingerprint,
        },
        files: { 'repo1-sftp-private-key-file': storage.privateKey },
      };
    case 'path':
      return {
        values: { ...common, 'repo1-type': 'posix', 'repo1-path': storage.directory },
        files: {},
      };
  }
}

/** The host and the port of a server; null: pgBackRest knows it. */
function endpointOption(option: string, endpoint: string | null): Record<string, string> {
  if (endpoint === null) return {};
  const { hostname, port } = new URL(endpoint);
  return { [option]: hostname, ...(port === '' ? {} : { 'repo1-storage-port': port }) };
}

const authority = (ca: string | null): Record<string, string> =>
  ca === null ? {} : { 'repo1-storage-ca-file': ca };

const rooted = (prefix: string): string => `/${prefix.replace(/^\/+|\/+$/g, '')}`;
