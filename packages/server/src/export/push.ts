/** One push of samples to the receiver of an exporter. */
import type { BlockList } from 'node:net';
import type { ExportedSample } from '../domain/exporter/figures.ts';
import { OTLP_HEADERS, otlpRequest } from '../domain/exporter/otlp.ts';
import { REMOTE_WRITE_HEADERS, remoteWriteRequest } from '../domain/exporter/remote-write.ts';
import { post, type Outgoing } from '../events/outgoing.ts';
import type { ExporterRow } from '../store/exporters.ts';
import { authorizationOf, type ExporterSecrets } from './secrets.ts';

const USER_AGENT = { 'User-Agent': 'Howdah-Exporter' };

export async function push(
  { type, config }: Pick<ExporterRow, 'type' | 'config'>,
  secrets: ExporterSecrets,
  samples: readonly ExportedSample[],
  allowed: BlockList,
): Promise<Outgoing> {
  const url = config.url ?? '';
  switch (type) {
    case 'PROMETHEUS_REMOTE_WRITE': {
      const authorization = authorizationOf(config.username, secrets);
      const headers = { ...USER_AGENT, ...REMOTE_WRITE_HEADERS, ...authorization };
      return post(url, headers, remoteWriteRequest(samples), allowed);
    }
    case 'OTLP_METRICS':
      return post(
        url,
        { ...USER_AGENT, ...secrets.headers, ...OTLP_HEADERS },
        otlpRequest(samples),
        allowed,
      );
    case 'PROMETHEUS_METRICS':
      throw new Error('nothing is pushed to an exporter that is scraped');
  }
}

/**
 * Whether a receiver refused the samples themselves: it would refuse them again. Both protocols
 * forbid to repeat such a request. A wrong password or path can be corrected, and is tried again.
 */
export const isRejected = ({ responseStatus }: Outgoing): boolean =>
  responseStatus !== null && [400, 413, 415, 422].includes(responseStatus);
