/** The secret with the certificate authority of a Cluster: docs/cloudnativepg.md, fact 35. */
import { createPrivateKey } from 'node:crypto';
import type { CertificateAuthority } from '../../test/probe.ts';

/** The fields of the secret, with the key in the form that Go writes. */
export const secretOf = ({ certificatePem, keyPem }: CertificateAuthority) => ({
  'ca.crt': certificatePem,
  'ca.key': createPrivateKey(keyPem).export({ type: 'sec1', format: 'pem' }).toString(),
});
