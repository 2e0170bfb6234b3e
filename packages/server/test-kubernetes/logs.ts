/** Server logs that outlive their pods. */
import { expect, test } from 'vitest';
import type { ServiceSpec } from '../test/probe.ts';
import { operator, rig } from './cloud.ts';
import { paused, SUPERUSER, withSubject } from './faults.ts';
import { pathIn } from './operator/cluster.ts';
import { namespaceOf, podOf, removeAll, replicated, settle, unpack } from './probe.ts';
import { messagesOf } from './server-log.ts';
import type { KubernetesSubject } from './subject.ts';
import { until, untilExpected } from '../test/until.ts';

const write = (subject: KubernetesSubject, spec: ServiceSpec, message: string) =>
  subject.withClient(spec, (client) => client.query(`do $$ begin raise log '${message}'; end $$`));
const times = (messages: readonly string[], message: string): number =>
  messages.filter((one) => one === message).length;

const STOPPING = 'received fast shutdown request';

async function isKept({ logs }: KubernetesSubject, message: string): Promise<boolean> {
  const parts = await Promise.all(logs.rows.map(async ({ lines }) => unpack(lines)));
  return parts.some(({ lines }) => lines.some(({ entry }) => entry.message === message));
}

/**
 * Stops a service whose server cannot end before its last words are kept: a process of it is
 * stopped so long. Otherwise a slow machine deletes the pod before it is read again.
 */
async function stopSlowly(subject: KubernetesSubject, spec: ServiceSpec): Promise<void> {
  const metadata = { namespace: namespaceOf(subject.projectId), name: podOf(spec.id, 0) };
  const writer = "select pid from pg_stat_activity where backend_type = 'walwriter'";
  const pid = await rig().exec(
    { metadata },
    `pid=$(${SUPERUSER} --tuples-only --no-align --command="${writer}") && ` +
      'kill -STOP $pid && echo $pid',
  );
  const stopped = settle(subject, paused(spec));
  try {
    await until('its last messages are kept', () => isKept(subject, STOPPING));
  } finally {
    await rig().exec({ metadata }, `kill -CONT ${pid}`);
  }
  await stopped;
}

test('lines from before a stop are there while a service is paused, and after its start', () =>
  withSubject(async (subject) => {
    const spec = await subject.newSpec();
    await settle(subject, spec);
    await write(subject, spec, 'before the stop');
    await stopSlowly(subject, spec);
    const stopped = await messagesOf(subject, spec);
    expect(times(stopped, 'before the stop')).toBe(1);
    expect(times(stopped, STOPPING)).toBe(1);
    await settle(subject, spec);
    await write(subject, spec, 'after the start');
    await untilExpected('the server log has the later message', async () =>
      expect(await messagesOf(subject, spec)).toContain('after the start'),
    );
    const all = await messagesOf(subject, spec);
    expect(all.slice(0, stopped.length)).toEqual(stopped);
    // Cursors go over the border, and lines are kept meanwhile.
    await untilExpected('more than one message is kept', () =>
      expect(subject.logs.rows.length).toBeGreaterThan(1),
    );
    expect(await messagesOf(subject, spec, { limit: 3 })).toEqual(await messagesOf(subject, spec));
    await removeAll(subject, spec.id);
  }));

test('lines of a primary that was killed are there after the failover, each once', () =>
  withSubject(async (subject) => {
    const spec = replicated(subject, await subject.newSpec(), 1);
    const { api } = operator();
    await settle(subject, spec);
    const before = subject.records.primary(spec.id) ?? 0;
    await write(subject, spec, 'before the end');
    const parts = subject.logs.rows.length;
    // Without time to end: only the rounds of before have its lines.
    await until('more of the server log is kept', async () => subject.logs.rows.length > parts);
    await api.remove(pathIn(namespaceOf(subject.projectId), 'pods', podOf(spec.id, before)), 0);
    await until(
      'another server is the primary',
      async () => subject.records.primary(spec.id) !== before,
    );
    await settle(subject, spec);
    const lost = await messagesOf(subject, spec, { node: before });
    expect(times(lost, 'before the end')).toBe(1);
    expect(await messagesOf(subject, spec, { node: before, limit: 2 })).toEqual(
      await messagesOf(subject, spec, { node: before }),
    );
    expect(times(await messagesOf(subject, spec), 'before the end')).toBe(0);
    await removeAll(subject, spec.id);
  }));
