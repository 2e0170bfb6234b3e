/** The outputs of the containers of pods, for tests. */

/** Lines with their stamps; ms since the epoch. */
export type FakeOutput = readonly (readonly [ms: number, text: string])[];

/** By the paths of pods. `silent`: there is no answer. */
export type FakeLogs = Map<
  string,
  Readonly<{ output: FakeOutput; previous?: FakeOutput }> | 'silent'
>;

/** A line as CloudNativePG prints it. */
export function logLine(ms: number, message: string, severity = 'LOG'): readonly [number, string] {
  const time = new Date(ms).toISOString().replace('T', ' ').replace('Z', ' UTC');
  const record = { log_time: time, error_severity: severity, message };
  return [ms, JSON.stringify({ logger: 'postgres', record })];
}

/** Answers as the kubelet does. @returns null: there is no such output */
export function answerLog(logs: FakeLogs, pod: string, query: URLSearchParams): string | null {
  const log = logs.get(pod);
  if (log === undefined || log === 'silent') return log ?? null;
  const output = query.get('previous') === 'true' ? log.previous : log.output;
  if (output === undefined) return null;
  const sinceMs = Date.parse(query.get('sinceTime') ?? '1970-01-01T00:00:00Z');
  const stamps = query.get('timestamps') === 'true';
  const text = output
    .slice(-Number(query.get('tailLines')))
    .filter(([ms]) => ms >= sinceMs)
    .map(([ms, line]) => `${stamps ? `${stampText(ms)} ` : ''}${line}\n`)
    .join('');
  return Buffer.from(text)
    .subarray(0, Number(query.get('limitBytes')))
    .toString('utf8');
}

/** With nanoseconds, in the zone of a node. */
function stampText(ms: number): string {
  const offsetMs = 2 * 3_600_000;
  return `${new Date(Math.floor(ms) + offsetMs).toISOString().slice(0, -1)}000000+02:00`;
}
