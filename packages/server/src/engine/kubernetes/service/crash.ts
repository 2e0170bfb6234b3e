/** Why a server ends again and again, where only its log has the reason. */
import { readOutput, type Extent, type LogSource } from '../logs/pod-log.ts';
import { VOLUME_FULL } from './observed.ts';

const CRASHED = /^pod (\S+): CrashLoopBackOff\b/;
/**
 * The texts of ENOSPC and of EDQUOT. A volume that is limited by a quota has the latter, for which
 * CloudNativePG has no exit status (docs/cloudnativepg.md, fact 42).
 */
const NO_SPACE = /No space left on device|Disk quota exceeded/;
const LAST: Extent = { lines: 100, bytes: 64 * 1024 };
/** The node may not answer, and the step is shown without the reason then. */
const WITHIN_MS = 5000;

/**
 * @param why an obstacle of the service
 * @returns it, or that the volume is full. Users can write to the log, so nothing else depends on it
 */
export async function explainCrash(
  kube: LogSource,
  namespace: string,
  why: string,
): Promise<string> {
  const name = CRASHED.exec(why)?.[1];
  if (name === undefined) return why;
  const signal = AbortSignal.timeout(WITHIN_MS);
  // A container that waits for its next start has the output of the last one.
  const asked = { previous: false, since: null, extent: LAST, signal };
  try {
    const { text } = await readOutput(kube, { namespace, name, tag: '' }, asked);
    return NO_SPACE.test(text) ? `pod ${name}: ${VOLUME_FULL}` : why;
  } catch {
    return why;
  }
}
