import createFetchClient, { type Client } from 'openapi-fetch';
import { DryRunError, errorOf, HowdahError, reasonOfForeign } from './errors.ts';
import type { components, paths } from './generated/api.ts';
import { createRetryingFetch } from './retry.ts';

export type Schemas = components['schemas'];
export type HowdahClient = Client<paths>;

export type ClientOptions = {
  /** `http://HOST:PORT/public/api/v1` */
  apiUrl: string;
  /** `<public_key>:<secret_key>`; absent in the web console, whose cookie represents its key. */
  key?: string;
  /** Further headers of each request. */
  headers?: Record<string, string>;
  /**
   * How often a call that is safe to repeat is repeated, with growing pauses, after a lost
   * connection or a 429, 502, 503 or 504; default 4.
   */
  retries?: number;
  /**
   * Whether every change is a dry run: its call throws {@link DryRunError}, and nothing is done.
   */
  dryRun?: boolean;
  /** The Idempotency-Key of each POST, for a client that makes one; default: a new one for each. */
  idempotencyKey?: string;
  /** Gets what the API warns of in its answers, such as fields that it does not know. */
  onWarning?: (text: string) => void;
  /** Replaces the platform's fetch, for example by one that trusts the CA of the installation. */
  fetch?: (request: Request) => Promise<Response>;
};

/**
 * Creates a client. Its calls throw {@link HowdahError} for an error of the API, its subclass
 * {@link DryRunError} after a dry run, and {@link NoAnswerError} if there is no answer.
 *
 * Each POST carries an Idempotency-Key of its own, so that it has one effect even if it is sent
 * twice: it is repeated like a GET.
 */
export function createClient({
  apiUrl,
  key,
  headers,
  retries = 4,
  dryRun = false,
  idempotencyKey,
  onWarning,
  fetch,
}: ClientOptions): HowdahClient {
  const client = createFetchClient<paths>({
    baseUrl: apiUrl,
    // Over a redirect, the key is lost or goes to somebody else.
    redirect: 'manual',
    headers: { ...(key === undefined ? {} : { Authorization: `Bearer ${key}` }), ...headers },
    fetch: createRetryingFetch(retries, fetch ?? ((request) => globalThis.fetch(request))),
  });
  client.use({
    onRequest: ({ request }) => {
      if (request.method === 'POST' && !request.headers.has(IDEMPOTENCY_KEY))
        request.headers.set(IDEMPOTENCY_KEY, idempotencyKey ?? newKey());
      if (!dryRun || request.method === 'GET') return undefined;
      const url = new URL(request.url);
      url.searchParams.set('dry_run', 'true');
      return new Request(url, request);
    },
    onResponse: async ({ response }) => {
      if (!response.ok) throw await errorOf(response);
      if (response.headers.get('Content-Type')?.startsWith('text/html') === true)
        throw new HowdahError(response.status, 'UNKNOWN', reasonOfForeign(response), undefined);
      const [, warning] = WARNING.exec(response.headers.get('Warning') ?? '') ?? [];
      if (warning !== undefined) onWarning?.(warning);
      // A caller that requested a change must not believe that it was made.
      if (response.headers.get('Dry-Run') === 'true') {
        const answer: Schemas['DryRun'] = JSON.parse(await response.text());
        throw new DryRunError(response.status, answer);
      }
    },
  });
  return client;
}

/** A warning of the API itself: code 299, no host, and a text. */
const WARNING = /^299 - "(.*)"$/;

const IDEMPOTENCY_KEY = 'Idempotency-Key';

/**
 * 128 random bits. Pages that came over plain HTTP from another machine have no
 * `crypto.randomUUID`.
 */
function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, '0'),
  ).join('');
}
