/** The secrets of exporters: sealed as those of webhooks are, and in no answer. */
import { Type } from 'typebox';
import { Check } from 'typebox/value';
import type { Sealer } from '../lib/sealer.ts';

const SecretsSchema = Type.Object({
  password: Type.Optional(Type.String()),
  bearer_token: Type.Optional(Type.String()),
  headers: Type.Optional(Type.Record(Type.String(), Type.String())),
});
export type ExporterSecrets = {
  password?: string;
  bearer_token?: string;
  headers?: Record<string, string>;
};

/** The error of an exporter whose secrets were sealed with another key. */
export const UNREADABLE_SECRETS =
  'the secrets of the exporter cannot be read: HOWDAH_HOME/secrets.key is not the file it was; ' +
  'set them again';

/** @returns null: there are none */
export function sealSecrets(sealer: Sealer, secrets: ExporterSecrets): Buffer | null {
  return Object.keys(secrets).length === 0 ? null : sealer.seal(JSON.stringify(secrets));
}

/** @returns null: they cannot be read */
export function openSecrets(sealer: Sealer, sealed: Buffer | null): ExporterSecrets | null {
  if (sealed === null) return {};
  const text = sealer.open(sealed);
  const secrets: unknown = text === null ? null : JSON.parse(text);
  return Check(SecretsSchema, secrets) ? secrets : null;
}

/** The header that authorizes a request; none without secrets. */
export function authorizationOf(
  username: string | undefined,
  { password, bearer_token: token }: ExporterSecrets,
): Record<string, string> {
  if (token !== undefined) return { Authorization: `Bearer ${token}` };
  if (username === undefined || password === undefined) return {};
  return { Authorization: `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}` };
}
