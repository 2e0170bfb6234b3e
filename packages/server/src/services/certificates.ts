/** Restore certificates of a service, as they were signed. */
import { ApiError, type CertificateSummary, type SignedCertificate } from '@howdah/contract';
import { findCertificateText, listCertificateTexts } from '../store/certificates.ts';
import type { ServicePlace } from '../store/service-documents.ts';
import type { ControlContext } from './control-context.ts';

export async function listCertificates(
  { store }: ControlContext,
  { key: id }: Pick<ServicePlace, 'key'>,
): Promise<CertificateSummary[]> {
  const texts = await listCertificateTexts(store.db, id);
  return texts.map((text) => {
    const { certificate }: SignedCertificate = JSON.parse(text);
    const { certificate_id, issued_at, operation_id, backup } = certificate;
    return { certificate_id, issued_at, operation_id, backup };
  });
}

/** @returns JSON text, in the canonical form @throws ApiError NOT_FOUND */
export async function readCertificate(
  { store }: ControlContext,
  { key: id }: Pick<ServicePlace, 'key'>,
  certificateId: string,
): Promise<string> {
  const text = await findCertificateText(store.db, id, certificateId);
  if (text !== null) return text;
  throw new ApiError(
    'NOT_FOUND',
    'there is no certificate with this id of the service; howdah backup certificates SERVICE ' +
      'lists them',
  );
}
