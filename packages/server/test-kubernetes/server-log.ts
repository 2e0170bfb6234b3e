/** Reads the server log of a service in the rig. */
import type { LogQuery, ServiceSpec } from '../test/probe.ts';
import type { KubernetesSubject } from './subject.ts';

const QUERY: LogQuery = {
  sinceMs: null,
  untilMs: null,
  cursor: null,
  search: [],
  severities: [],
  limit: 1000,
};
const { signal } = new AbortController();

/** The messages of a log, oldest first. @param limit of a page */
export async function messagesOf(
  { engine }: KubernetesSubject,
  { id }: ServiceSpec,
  { node = null, limit = 1000 }: Readonly<{ node?: number | null; limit?: number }> = {},
): Promise<string[]> {
  const messages: string[] = [];
  let cursor: string | null = null;
  do {
    const page = await engine.observe.logs(id, node, { ...QUERY, cursor, limit }, signal);
    messages.push(...page.entries.map(({ message }) => message));
    ({ cursor } = page);
  } while (cursor !== null);
  return messages.toReversed();
}
