/** Schemas of restore certificates: what a verification of a backup has measured, signed. */
import { Type } from 'typebox';
import { Named, Ref, StringEnum } from '../schema.ts';
import { CERTIFICATE_FORMAT } from '../values.ts';
import { count, dateTime, moment, regionCode } from './parts.ts';

const backup = Type.Object({
  place: StringEnum(['snapshot', 'repository', 'object store'], {
    description: 'snapshot: beside the service; object store: the archive of its region',
  }),
  repository: Type.Union([Type.String(), Type.Null()], {
    description: 'its name; null: the backup is in none',
  }),
  label: Type.String({ description: 'by which that place knows the backup' }),
  taken: dateTime('the data that was restored is of this moment, before WAL was replayed'),
});

const contents = Type.Object({
  databases: count('of users'),
  tables: count('of users, with materialized views and partitions'),
  rows: count('counted one by one in the tables but for `uncounted_tables`'),
  uncounted_tables: count('larger ones that the time was too short for'),
});

export const RestoreCertificateSchema = Named(
  'RestoreCertificate',
  Type.Object({
    format: StringEnum([CERTIFICATE_FORMAT]),
    certificate_id: Type.String(),
    key_id: Type.String({ description: 'of the public key that the signature is valid with' }),
    issued_at: dateTime('by the clock of the installation'),
    howdah_version: Type.String(),
    project_id: Type.String(),
    region_code: regionCode('of the service'),
    service_id: Type.String(),
    service_name: Type.String({ description: 'as it was when the verification began' }),
    operation_id: Type.String({ description: 'of the verification' }),
    backup,
    postgresql_version: Type.Union([Type.String(), Type.Null()], {
      description: 'of the server that the backup was restored with; null: not known',
    }),
    began: dateTime('when the restore began'),
    ended: dateTime('when the last check ended'),
    recovery_point: moment('of the last transaction that the restored copy holds'),
    rpo_seconds: Type.Union([Type.Integer({ minimum: 0 }), Type.Null()], {
      description: 'the most that the restored copy lacked when the restore began; null: not known',
    }),
    rto_seconds: Type.Union([Type.Number({ minimum: 0 }), Type.Null()], {
      description: 'from the begin of the restore to the first query; null: not measured',
    }),
    contents: Type.Union([contents, Type.Null()], { description: 'null: not counted' }),
    pages: Type.Union(
      [Type.Object({ pages: count('of 8 kB'), files: count('with them') }), Type.Null()],
      {
        description: 'whose checksums were computed and found right; null: there are no checksums',
      },
    ),
    checks: Type.Array(Type.Object({ name: Type.String(), detail: Type.String() }), {
      description: 'that passed, in their order',
    }),
  }),
);

export type RestoreCertificate = Type.Static<typeof RestoreCertificateSchema>;

export const SignedCertificateSchema = Named(
  'SignedCertificate',
  Type.Object({
    certificate: Ref(RestoreCertificateSchema),
    signature: Type.String({
      description: 'Ed25519, of the certificate in its canonical form (RFC 8785), in hexadecimal',
    }),
  }),
);

export type SignedCertificate = Type.Static<typeof SignedCertificateSchema>;

export const CertificateSummarySchema = Named(
  'CertificateSummary',
  Type.Object({
    certificate_id: Type.String(),
    issued_at: dateTime('when the verification succeeded'),
    operation_id: Type.String({ description: 'of the verification' }),
    backup,
  }),
);

export type CertificateSummary = Type.Static<typeof CertificateSummarySchema>;

export const CertificateKeySchema = Named(
  'CertificateKey',
  Type.Object({
    key_id: Type.String({ description: 'SHA-256 of the key in DER, in hexadecimal' }),
    public_key: Type.String({ description: 'PEM' }),
    created: dateTime('when the first certificate was signed with it'),
  }),
);

export type CertificateKey = Type.Static<typeof CertificateKeySchema>;
