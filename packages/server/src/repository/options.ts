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
    case 's3': {
      const { hostname, port } = new URL(storage.endpoint);
      return {
        values: {
          ...common,
          'repo1-type': 's3',
          'repo1-path': rooted(storage.prefix),
          'repo1-s3-endpoint': hostname,
          ...(port === '' ? {} : { 'repo1-storage-port': port }),
          'repo1-s3-bucket': storage.bucket,
          'repo1-s3-region': storage.region,
          'repo1-s3-key': storage.keyId,
          'repo1-s3-key-secret': storage.key,
          'repo1-s3-uri-style': storage.uriStyle,
        },
        files: storage.ca === null ? {} : { 'repo1-storage-ca-file': storage.ca },
      };
    }
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
        },
        files: {},
      };
    case 'gcs':
      return {
        values: {
          ...common,
          'repo1-type': 'gcs',
          'repo1-path': rooted(storage.prefix),
          'repo1-gcs-bucket': storage.bucket,
        },
        files: { 'repo1-gcs-key': storage.key },
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

const rooted = (prefix: string): string => `/${prefix.replace(/^\/+|\/+$/g, '')}`;
