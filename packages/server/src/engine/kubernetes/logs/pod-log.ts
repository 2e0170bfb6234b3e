/** Requests for the output of PostgreSQL's container in a pod, bounded in bytes and time. */
import type { Kube } from '../api/client.ts';
import { KubeError } from '../api/errors.ts';
import { KINDS, pathOf } from '../api/kinds.ts';
import { secondOf } from './lines.ts';

/** Callers of the API wait for it; the keeper, which reads one after the other, waits less. */
const WITHIN_MS = 20_000;
/** A longer line of a container is several ones for `tailLines`, each with 150 bytes more. */
const PIECE_BYTES = 16 * 1024 + 256;
const [BAD_REQUEST, NOT_FOUND] = [400, 404];

/** A pod of a server. @param tag its name in kept logs */
export type Pod = Readonly<{ namespace: string; name: string; tag: string }>;

/** The parts of the API that logs need. */
export type LogSource = Pick<Kube, 'text'>;

/** `isWhole`: nothing older was left out, back to the asked time. */
export type Output = Readonly<{ text: string; isWhole: boolean }>;

/** How much of an output is read. */
export type Extent = Readonly<{ lines: number; bytes: number }>;

type Asked = Readonly<{
  /** That of the container before; it has the reason why that ended. */
  previous: boolean;
  /** The stamp of the first line; null: from the begin. Its whole second is read. */
  since: string | null;
  extent: Extent;
  signal: AbortSignal;
}>;

const NOTHING: Output = { text: '', isWhole: true };

/**
 * The newest part of the output of a container, with stamps. A pod or a container that is not there
 * has none.
 *
 * @throws KubeError
 */
export async function readOutput(kube: LogSource, pod: Pod, asked: Asked): Promise<Output> {
  const { previous, since, extent, signal } = asked;
  const within = AbortSignal.any([signal, AbortSignal.timeout(WITHIN_MS)]);
  // Kubernetes leaves out the newest lines beyond the limit, so that fewer are asked for then.
  for (let { lines } = extent; ; lines = fewer(lines, extent)) {
    const parameters = new URLSearchParams({
      container: 'postgres',
      timestamps: 'true',
      tailLines: String(lines),
      limitBytes: String(extent.bytes),
      ...(previous ? { previous: 'true' } : {}),
      ...(since === null ? {} : { sinceTime: secondOf(since) }),
    });
    const path = `${pathOf({ kind: KINDS.pod, ...pod }, 'log')}?${parameters.toString()}`;
    const text = await kube.text(path, within).catch(noneIfAbsent);
    if (text === null) return NOTHING;
    const isCut = Buffer.byteLength(text) >= extent.bytes;
    if (!isCut || lines === fewer(lines, extent))
      return { text, isWhole: !isCut && text.split('\n').length <= lines };
  }
}

/** Fewer lines, down to a number that is within the limit whatever their length is. */
const fewer = (lines: number, { bytes }: Extent): number =>
  Math.min(lines, Math.max(Math.floor(lines / 8), Math.floor(bytes / PIECE_BYTES)));

/**
 * A container that is the first of its pod has none before it, and one that waits has no output.
 */
function noneIfAbsent(error: unknown): null {
  if (error instanceof KubeError && (error.status === BAD_REQUEST || error.status === NOT_FOUND))
    return null;
  throw error;
}
