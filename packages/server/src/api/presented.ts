/** The names in a request: the key in its header, and the project and resource in its path. */
export type PresentedKey = { publicKey: string; secretKey: string };

/** The two halves of the key in an Authorization header; null when there are none. */
export function parseAuthorization(header: string | undefined): PresentedKey | null {
  const [, scheme, value] = /^(Bearer|Basic) +([^ ]+) *$/i.exec(header ?? '') ?? [];
  if (scheme === undefined || value === undefined) return null;
  const pair =
    scheme.toLowerCase() === 'basic' ? Buffer.from(value, 'base64').toString('utf8') : value;
  const colon = pair.indexOf(':');
  const publicKey = pair.slice(0, colon);
  // An impossible key is not searched for: PostgreSQL refuses a text with a NUL.
  if (colon < 1 || !/^[A-Za-z0-9_-]{1,64}$/.test(publicKey)) return null;
  return { publicKey, secretKey: pair.slice(colon + 1) };
}

const PARAMETERS = ['project_id', 'service_id', 'vpc_id', 'peering_id', 'replica_set_id'] as const;

/** The project, and what else of ours, that a path names. */
export function parametersOf(
  params: unknown,
): Partial<Record<(typeof PARAMETERS)[number], string>> {
  if (typeof params !== 'object' || params === null) return {};
  const entries = PARAMETERS.map((name) => [name, Reflect.get(params, name)] as const);
  return Object.fromEntries(entries.filter(([, value]) => typeof value === 'string'));
}
