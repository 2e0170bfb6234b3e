/** The typed client of the API: types generated from the OpenAPI document, a thin hand around them. */
import createFetchClient, { type Client } from 'openapi-fetch';
import type { components, paths } from './generated/api.ts';

export type Schemas = components['schemas'];
export type HowdahClient = Client<paths>;

export type ClientOptions = {
  /** `http://HOST:PORT/public/api/v1` */
  apiUrl: string;
  /** `<public_key>:<secret_key>` */
  key: string;
};

/** An answer that is an error of the API. */
export class HowdahError extends Error {
  readonly status: number;
  readonly code: string;
  readonly requestId: string | undefined;

  constructor(status: number, code: string, message: string, requestId: string | undefined) {
    super(message);
    this.name = 'HowdahError';
    this.status = status;
    this.code = code;
    this.requestId = requestId;
  }
}

/** A client whose calls throw {@link HowdahError} for every answer that is an error. */
export function createClient({ apiUrl, key }: ClientOptions): HowdahClient {
  const client = createFetchClient<paths>({ baseUrl: apiUrl, headers: { Authorization: `Bearer ${key}` } });
  client.use({
    onResponse: async ({ response }) => {
      if (!response.ok) throw await errorOf(response);
    },
  });
  return client;
}

async function errorOf(response: Response): Promise<HowdahError> {
  const body: unknown = await response.json().catch(() => null);
  const text = (name: string): string | undefined => {
    const value: unknown = typeof body === 'object' && body !== null ? Reflect.get(body, name) : undefined;
    return typeof value === 'string' ? value : undefined;
  };
  return new HowdahError(
    response.status,
    text('code') ?? 'UNKNOWN',
    text('message') ?? `the server answered ${response.status}`,
    text('request_id'),
  );
}
