/**
 * Compression of long answers, for clients that ask for it as browsers do: 2 000 services are 2 MB.
 * A library would bring 14 packages and half a megabyte for this.
 */
import type { FastifyInstance } from 'fastify';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';

/** Below, a packet or two are saved, and on this machine nothing. */
export const COMPRESSED_FROM_BYTES = 32_768;

const compress = promisify(gzip);

/** Compresses JSON; streams and files of the console are no text here. */
export function compressLongAnswers(app: Pick<FastifyInstance, 'addHook'>): void {
  app.addHook('onSend', async (request, reply, payload) => {
    if (typeof payload !== 'string' || payload.length < COMPRESSED_FROM_BYTES) return payload;
    void reply.header('Vary', 'Accept-Encoding');
    if (!acceptsGzip(request.headers['accept-encoding'] ?? '')) return payload;
    void reply.header('Content-Encoding', 'gzip').removeHeader('Content-Length');
    return compress(payload);
  });
}

/** RFC 9110, 12.5.3: a list of codings, each with a weight; a weight of 0 refuses one. */
export function acceptsGzip(header: string): boolean {
  const weights = new Map(
    header.split(',').map((entry) => {
      const [coding = '', ...parameters] = entry
        .split(';')
        .map((part) => part.trim().toLowerCase());
      const weight = parameters.find((parameter) => parameter.startsWith('q='));
      return [coding, weight === undefined ? 1 : Number(weight.slice(2))] as const;
    }),
  );
  return (weights.get('gzip') ?? weights.get('*') ?? 0) > 0;
}
