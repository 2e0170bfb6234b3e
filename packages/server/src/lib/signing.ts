/** Signatures with Ed25519 (RFC 8032). Private keys are PKCS #8 in PEM, public ones SPKI in PEM. */
import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  sign as signBytes,
} from 'node:crypto';

/** id: the SHA-256 of the public key in DER, in hexadecimal. */
export type SigningKey = Readonly<{ id: string; publicPem: string; privatePem: string }>;

export function makeSigningKey(): SigningKey {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519', {
    publicKeyEncoding: { type: 'spki', format: 'pem' },
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  });
  return { id: keyIdOf(publicKey), publicPem: publicKey, privatePem: privateKey };
}

export function keyIdOf(publicPem: string): string {
  const der = createPublicKey(publicPem).export({ type: 'spki', format: 'der' });
  return createHash('sha256').update(der).digest('hex');
}

/** @returns the signature of a text in UTF-8, in hexadecimal */
export function sign(privatePem: string, text: string): string {
  const signature = signBytes(null, Buffer.from(text, 'utf8'), createPrivateKey(privatePem));
  return signature.toString('hex');
}
