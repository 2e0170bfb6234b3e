/**
 * Pushes the samples of services to the receivers of their exporters. The samples in the metadata
 * database are the queue: each service has the time up to which its samples are pushed. Exporters
 * are independent: a slow receiver delays its own samples only.
 */
import type { BlockList } from 'node:net';
import type { Sealer } from '../lib/sealer.ts';
import type { Log } from '../lib/log.ts';
import { createParallelWork, type ParallelWork } from '../lib/parallel-work.ts';
import type { Rounds } from '../lib/rounds.ts';
import type { Store } from '../store/database.ts';
import {
  listDueExporters,
  noteExported,
  notePush,
  readUnsent,
  type ExporterRow,
} from '../store/exporters.ts';
import type { ExportedSample } from '../domain/exporter/figures.ts';
import {
  openSecrets,
  UNREADABLE_SECRETS,
  authorizationOf,
  type ExporterSecrets,
} from './secrets.ts';
import {
  OTLP_HEADERS,
  otlpRequest,
  REMOTE_WRITE_HEADERS,
  remoteWriteRequest,
} from '../domain/exporter/formats.ts';
import { post, type Outgoing } from '../events/outgoing-request.ts';

/** The wait after the first failure; it doubles with each further one. */
const FIRST_RETRY_MS = 10_000;
const LONGEST_RETRY_MS = 300_000;

type PusherOptions = {
  store: Store;
  log: Log;
  rounds: Rounds;
  sealer: Sealer;
  allowed: BlockList;
};

type Pusher = Readonly<PusherOptions & { work: ParallelWork }>;

const INTERRUPTED = 'a push of samples was interrupted; trying again';

export function createPusher(options: PusherOptions) {
  const work = createParallelWork(options.log, 'exporter', INTERRUPTED);
  const pusher = { ...options, work };
  const round = options.rounds.every('exports', async () => {
    for (const exporter of await listDueExporters(options.store.db))
      work.begin(exporter.id, () => pushAll(pusher, exporter));
  });
  return {
    start: round.startLater,
    /** Waits for the pushes that are under way. */
    close: async (): Promise<void> => {
      work.end();
      await round.close();
      await work.ended();
    },
  };
}

/** Pushes all samples of an exporter, the oldest first, until one push fails. */
async function pushAll(pusher: Pusher, exporter: ExporterRow): Promise<void> {
  const {
    store: { db },
    sealer,
    allowed,
    log,
    work,
  } = pusher;
  const { id, failures } = exporter;
  const secrets = openSecrets(sealer, exporter.secret);
  for (;;) {
    const samples = await readUnsent(db, id);
    if (samples.length === 0 || work.isEnding()) return;
    const outcome =
      secrets === null
        ? { responseStatus: null, error: UNREADABLE_SECRETS }
        : await push(exporter, secrets, samples, allowed);
    const { error } = outcome;
    if (error === null || isRejected(outcome))
      for (const [serviceId, until] of lastOf(samples)) await noteExported(db, serviceId, until);
    await notePush(db, id, error === null ? null : { error, retryAfterMs: retryAfterMs(failures) });
    if (error === null) continue;
    log.info({ exporter: id, reason: error }, 'samples were not accepted');
    return;
  }
}

/** The time of the last sample of each service. */
function lastOf(samples: readonly ExportedSample[]): Map<string, Date> {
  // Samples are in the order of their time.
  return new Map(samples.map(({ serviceId, at }) => [serviceId, at]));
}

const retryAfterMs = (failures: number): number =>
  Math.min(FIRST_RETRY_MS * 2 ** Math.min(failures, 10), LONGEST_RETRY_MS);

// One push of samples to the receiver of an exporter.

const USER_AGENT = { 'User-Agent': 'Howdah-Exporter' };

async function push(
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
const isRejected = ({ responseStatus }: Outgoing): boolean =>
  responseStatus !== null && [400, 413, 415, 422].includes(responseStatus);
