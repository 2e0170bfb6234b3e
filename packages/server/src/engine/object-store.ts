/** Where a region keeps base backups and WAL of its services: a folder of a bucket. */

export type ObjectStore = Readonly<{
  /** The name of its folder. Another place has another one. */
  id: string;
  /** When the place was set; ms since the epoch. Files of before are elsewhere. */
  sinceMs: number;
  /** https://HOST or https://HOST:PORT */
  endpoint: string;
  bucket: string;
  region: string;
  keyId: string;
  key: string;
  /** Certificates that sign that of the endpoint, in PEM; null: those of the system. */
  caPem: string | null;
}>;

/** The folder of all services, without the bucket: two installations never share one. */
export const folderOf = ({ id }: Pick<ObjectStore, 'id'>): string => `howdah/${id}`;

/** For people: without credentials. */
export const locationOf = (store: Pick<ObjectStore, 'id' | 'bucket' | 'endpoint'>): string =>
  `s3://${store.bucket}/${folderOf(store)} at ${store.endpoint}`;
