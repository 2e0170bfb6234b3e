/**
 * By which names the API is reached. A page of somebody else can resolve its own name to this
 * address (DNS rebinding) and then read what needs no key: it sends its name in the header Host. A
 * call with a key is not such a page's, which knows none.
 */
import { X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { ApiError, inQuotes } from '@howdah/contract';
import type { FastifyRequest } from 'fastify';

/** Probes come by names of their own, and learn nothing but whether we live. */
const ANY_NAME: readonly string[] = ['/healthz', '/readyz'];

/**
 * @param names of the installation; `*.` at the begin stands for any one label, as in certificates
 */
export function createHostCheck(
  names: readonly string[],
): (request: FastifyRequest) => Promise<void> {
  const known = ['localhost', '*.localhost', ...names].map((name) => name.toLowerCase());

  return async ({ headers, routeOptions }) => {
    const { host, authorization } = headers;
    // Where there is no route, there is nothing to read.
    if (
      authorization !== undefined ||
      host === undefined ||
      routeOptions.url === undefined ||
      ANY_NAME.includes(routeOptions.url)
    )
      return;
    const name = nameOf(host);
    if (isIP(name) !== 0 || known.includes(name) || known.includes(name.replace(/^[^.]+/, '*')))
      return;
    throw new ApiError(
      'INVALID_REQUEST',
      `Host: found ${inQuotes(host)}, by which this installation is not known; ` +
        'use an IP address or one of its names, or add this one to HOWDAH_API_HOSTS ' +
        '(howdah up --api-hosts)',
    );
  };
}

/** A host without its port, its brackets and the dot at its end. */
function nameOf(host: string): string {
  return host
    .trim()
    .toLowerCase()
    .replace(/:[0-9]*$/, (port) => (isIP(host) === 6 ? port : ''))
    .replace(/^\[(.*)\]$/, '$1')
    .replace(/\.$/, '');
}

/** The names that a certificate is for. */
export function namesOf(certificatePem: string): string[] {
  const names = new X509Certificate(certificatePem).subjectAltName ?? '';
  return [...names.matchAll(/DNS:([^,\s"]+)/g)].flatMap(([, name]) => name ?? []);
}

/**
 * The address of this installation as the caller reaches it, like https://howdah.example.com:8080;
 * createHostCheck has checked its name.
 */
export const originOf = ({ protocol, host }: Pick<FastifyRequest, 'protocol' | 'host'>): string =>
  `${protocol}://${host}`;
