/** Verifies restore certificates without an installation: with a public key that was kept. */
import { createHash, createPublicKey, verify, type KeyObject } from 'node:crypto';
import { canonicalJson } from '@howdah/contract/canonical';
import { attachedTo, certificatePage } from '@howdah/contract/certificate-page';
import type { SignedCertificate } from '@howdah/contract';
import { CERTIFICATE_FORMAT } from '@howdah/contract/values';
import { Failure } from './exit.ts';

/** Why a document is not verified. */
const refused = (why: string): Failure => new Failure(`not verified: ${why}`);

/**
 * Verifies a document, or the document that is attached to a page.
 *
 * @param keys one public key or more, in PEM
 * @throws Failure with the reason why it is not verified
 */
export function verifyCertificate(file: Uint8Array, keys: string): SignedCertificate {
  const isPage = Buffer.from(file.subarray(0, 5)).toString('latin1') === '%PDF-';
  const attached = isPage ? attachedTo(file) : file;
  if (attached === null) throw refused('the PDF has no certificate of Howdah in it');
  const signed = signedIn(attached);
  const { certificate, signature } = signed;
  const known = publicKeysIn(keys);
  const key = known.find(({ id }) => id === certificate.key_id);
  if (key === undefined)
    throw refused(
      `it names the key ${certificate.key_id}, and the file of keys has ` +
        `${known.map(({ id }) => id).join(', ')}: ask its installation for the key (howdah ` +
        'backup certificate-key), in a way that you trust',
    );
  const text = Buffer.from(canonicalJson(certificate), 'utf8');
  if (!verify(null, text, key.key, Buffer.from(signature, 'hex')))
    throw refused('its signature is wrong: it was changed after it was signed, or never signed');
  const format: string = certificate.format;
  if (format !== CERTIFICATE_FORMAT)
    throw refused(
      `its signature is right, and its format is not known: found ${format}; ` +
        `this version reads ${CERTIFICATE_FORMAT}`,
    );
  if (isPage && Buffer.compare(file, certificatePage(canonicalJson(signed))) !== 0)
    throw refused(
      'the document in it is genuine, and its page does not show that document: do not trust ' +
        'what you see',
    );
  return signed;
}

function signedIn(bytes: Uint8Array): SignedCertificate {
  const signed = parsed(bytes);
  const { certificate, signature, ...others } = signed;
  if (typeof certificate !== 'object' || certificate === null)
    throw refused('it is no restore certificate');
  // Other spellings of the same signature would be changes that are not seen.
  if (typeof signature !== 'string' || !/^[0-9a-f]{128}$/.test(signature))
    throw refused('its signature has not the form of one');
  if (Object.keys(others).length > 0)
    throw refused(`it has fields that nothing has signed: ${Object.keys(others).join(', ')}`);
  return { certificate, signature };
}

function parsed(bytes: Uint8Array): Partial<SignedCertificate> {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    throw refused('it is neither JSON nor a PDF of a certificate');
  }
  if (typeof value !== 'object' || value === null) throw refused('it is no restore certificate');
  return value;
}

const PEM = /-----BEGIN PUBLIC KEY-----[\s\S]+?-----END PUBLIC KEY-----/g;

function publicKeysIn(text: string): { id: string; key: KeyObject }[] {
  const keys = (text.match(PEM) ?? []).flatMap((pem) => {
    try {
      const key = createPublicKey(pem);
      if (key.asymmetricKeyType !== 'ed25519') return [];
      const der = key.export({ type: 'spki', format: 'der' });
      return [{ id: createHash('sha256').update(der).digest('hex'), key }];
    } catch {
      return []; // it is damaged
    }
  });
  if (keys.length > 0) return keys;
  throw new Failure(
    '--key: found no public key for Ed25519 in PEM; howdah backup certificate-key > FILE ' +
      'writes those of an installation',
    'usage',
  );
}
