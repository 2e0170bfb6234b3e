/**
 * Issues restore certificates: one for each backup that a verification restored and found sound, in
 * the transaction that records its success (docs/decisions/0107-restore-certificates.md).
 */
import {
  canonicalJson,
  CERTIFICATE_FORMAT,
  type RestoreCertificate,
  type SignedCertificate,
} from '@howdah/contract';
import { VERSION } from '@howdah/contract/version';
import type { OperationRow } from '../domain/operation.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import type { RestoredBackup } from '../engine/restored-backup.ts';
import { newId } from '../lib/ids.ts';
import type { Sealer } from '../lib/sealer.ts';
import { makeSigningKey, sign, type SigningKey } from '../lib/signing.ts';
import {
  insertCertificate,
  insertCertificateKey,
  lockCertificateKeys,
} from '../store/certificates.ts';
import { lockService } from '../store/services.ts';
import type { Tx } from '../store/tables.ts';

type Subject = Pick<ServiceRow, 'id' | 'name' | 'project_id' | 'region_code'>;

/** Issues the certificates of a verification. A service that is gone gets none. */
export async function issueCertificates(
  tx: Tx,
  sealer: Sealer,
  { id: operationId }: Pick<OperationRow, 'id'>,
  service: Subject,
  restored: readonly RestoredBackup[],
): Promise<void> {
  if (restored.length === 0 || (await lockService(tx, service.id)) === null) return;
  const key = await signingKey(tx, sealer);
  for (const backup of restored) {
    const { certificate, signature } = certify(key, operationId, service, backup);
    await insertCertificate(tx, {
      id: certificate.certificate_id,
      service_id: service.id,
      issued: certificate.issued_at,
      document: canonicalJson({ certificate, signature }),
    });
  }
}

/** @returns the signed document */
export function certify(
  { id: key_id, privatePem }: Pick<SigningKey, 'id' | 'privatePem'>,
  operation_id: string,
  { id: service_id, name: service_name, project_id, region_code }: Subject,
  backup: RestoredBackup,
): SignedCertificate {
  const certificate: RestoreCertificate = {
    ...backup,
    format: CERTIFICATE_FORMAT,
    certificate_id: newId(),
    key_id,
    issued_at: new Date().toISOString(),
    howdah_version: VERSION,
    project_id: project_id ?? '',
    region_code,
    service_id,
    service_name,
    operation_id,
  };
  return { certificate, signature: sign(privatePem, canonicalJson(certificate)) };
}

/**
 * The newest key whose private half can be decrypted. The first certificate makes one, and so does
 * the first after `secrets.key` was lost: the older public keys stay listed.
 */
async function signingKey(
  tx: Tx,
  { seal, open }: Sealer,
): Promise<Pick<SigningKey, 'id' | 'privatePem'>> {
  for (const { id, sealed } of await lockCertificateKeys(tx)) {
    const privatePem = open(sealed);
    if (privatePem !== null) return { id, privatePem };
  }
  const made = makeSigningKey();
  await insertCertificateKey(tx, {
    id: made.id,
    public_key: made.publicPem,
    sealed: seal(made.privatePem),
  });
  return made;
}
