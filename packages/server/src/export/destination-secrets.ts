/** The secrets of destinations of alerts: sealed as those of webhooks are, and in no answer. */
import { Type } from 'typebox';
import { Check } from 'typebox/value';
import type { Sealer } from '../lib/sealer.ts';

const SecretsSchema = Type.Object({
  url: Type.Optional(Type.String()),
  password: Type.Optional(Type.String()),
  routing_key: Type.Optional(Type.String()),
  signing_secret: Type.Optional(Type.String()),
});

/** url: of slack, teams and webhook, whose path is a secret. */
export type DestinationSecrets = {
  url?: string;
  password?: string;
  routing_key?: string;
  signing_secret?: string;
};

/** The error of a destination whose secrets were sealed with another key. */
export const UNREADABLE_DESTINATION =
  'the secrets of the destination cannot be read: HOWDAH_HOME/secrets.key is not the file it ' +
  'was; set them again';

export const sealDestination = (sealer: Sealer, secrets: DestinationSecrets): Buffer =>
  sealer.seal(JSON.stringify(secrets));

/** @returns null: they cannot be read */
export function openDestination(sealer: Sealer, sealed: Buffer): DestinationSecrets | null {
  const text = sealer.open(sealed);
  const secrets: unknown = text === null ? null : JSON.parse(text);
  return Check(SecretsSchema, secrets) ? secrets : null;
}
