/**
 * A repository: a place for backups off this machine, in pgBackRest's format
 * (docs/decisions/0045-off-machine-backups.md).
 */

/** Where a repository is, with the credentials in the clear. */
export type Storage =
  | {
      type: 's3';
      /** `https://HOST` or `https://HOST:PORT`; pgBackRest speaks TLS only. */
      endpoint: string;
      bucket: string;
      region: string;
      keyId: string;
      key: string;
      /** How the bucket is named: in the host name (AWS), or in the path (most others). */
      uriStyle: 'host' | 'path';
      /** Certificates that sign the server's, in PEM; null: those that the system trusts. */
      ca: string | null;
      /** The directory in the bucket. */
      prefix: string;
    }
  | {
      type: 'azure';
      account: string;
      container: string;
      /** The key of the account (`shared`), or a shared access signature (`sas`). */
      key: string;
      keyType: 'shared' | 'sas';
      /** As for S3, without the account; null: Azure's public cloud. */
      endpoint: string | null;
      /** How the account is named: in the host name (Azure), or in the path (Azurite). */
      uriStyle: 'host' | 'path';
      ca: string | null;
      prefix: string;
    }
  | {
      type: 'gcs';
      bucket: string;
      /** The key of a service account, in JSON. It has the address that makes tokens. */
      key: string;
      /** As for S3; null: Google's own. */
      endpoint: string | null;
      /** Certificates that sign both servers', in PEM; null: those that the system trusts. */
      ca: string | null;
      prefix: string;
    }
  | {
      type: 'sftp';
      host: string;
      port: number;
      user: string;
      /** In PEM, without a passphrase. */
      privateKey: string;
      /** The SHA-256 of the host's key, in hexadecimal. */
      hostFingerprint: string;
      directory: string;
    }
  | { type: 'path'; directory: string };

/** A place for backups off this machine, its secrets in the clear. */
export type Repository = {
  id: string;
  name: string;
  storage: Storage;
  /** The passphrase of the encryption, which happens on this machine. */
  passphrase: string;
};

/** The user of the operating system that pgBackRest runs as. */
export type BackupUser = { uid: number; gid: number };

/** An installed pgBackRest. */
export type PgBackRest = {
  program: string;
  version: string;
  /** null: our own, where the control plane is not root. */
  user: BackupUser | null;
  /** How long it waits for an answer of a repository; it tries again several times. */
  ioTimeoutSeconds: number;
  /** Whether it reads a repository of another installation, whose files may belong to anybody. */
  isForeign?: true;
};

/** A repository cannot do a work. The message says what is in the way, and what fixes it. */
export class RepositoryProblem extends Error {}

/** The object with the data of the control plane. */
export const CONTROL_OBJECT = 'control.gz';
