/** Allowed networks of services: who logs in, whose sessions end, and what the owner cannot do. */
import { describe, expect, test } from 'vitest';
import type { ServiceSpec } from '../test/probe.ts';
import { makeOlder, withSubject } from './faults.ts';
import { controlSecret, removeAll, runStatement, settle } from './probe.ts';
import type { KubernetesSubject } from './subject.ts';
import { until } from '../test/until.ts';

const OTHERS = ['192.0.2.0/24', '2001:db8::/32'];

/** The error of a session whose server has ended it. */
const ENDED = /is not queryable|terminat(ed|ing)/;

/** When the server of a service has started, by a statement of the control plane. */
async function startedAt(subject: KubernetesSubject, spec: ServiceSpec): Promise<string | null> {
  const { rows } = await runStatement(subject, spec, 'select pg_postmaster_start_time()');
  return rows[0]?.[0] ?? null;
}

/** A session, and whether it has ended. */
async function holdSession(
  subject: KubernetesSubject,
  spec: ServiceSpec,
  user?: string,
  password?: string,
) {
  let end: () => void = () => undefined;
  const ending = new Promise<void>((resolve) => (end = resolve));
  let hasBegun: () => void = () => undefined;
  const begun = new Promise<void>((resolve) => (hasBegun = resolve));
  const held = subject
    .withClient(
      spec,
      async (client) => {
        hasBegun();
        await ending;
        await client.query('select 1');
      },
      password,
      user === undefined ? {} : { user },
    )
    .then(
      () => 'goes on',
      (error: unknown) => String(error),
    );
  await begun;
  return async (): Promise<string> => {
    end();
    return held;
  };
}

describe.concurrent('allowed networks', () => {
  test('sessions of other networks end without a restart, and statements go on', () =>
    withSubject(async (subject) => {
      const spec = { ...(await subject.newSpec()), allowedNetworks: [subject.clientNetwork] };
      await settle(subject, spec);
      const known = { ...spec, provisioned: true };
      const before = await startedAt(subject, spec);
      const allowed = await holdSession(subject, spec);
      const { steps } = await settle(subject, {
        ...known,
        allowedNetworks: [...OTHERS, subject.clientNetwork],
      });
      expect(steps).toEqual(['write configuration', 'connect']);
      expect(await allowed()).toBe('goes on');
      const disallowed = await holdSession(subject, spec);
      await settle(subject, { ...known, allowedNetworks: OTHERS });
      expect(await disallowed()).toMatch(ENDED);
      await expect(subject.withClient(spec, async () => undefined)).rejects.toThrow(/pg_hba.conf/);
      expect(await startedAt(subject, spec)).toBe(before);
      // After a restart, before any client: the rules are those of the Cluster.
      await settle(subject, { ...known, allowedNetworks: OTHERS, power: 'paused' });
      await settle(subject, { ...known, allowedNetworks: OTHERS });
      await expect(subject.withClient(spec, async () => undefined)).rejects.toThrow(/pg_hba.conf/);
      await settle(subject, known);
      await removeAll(subject, spec.id);
    }));

  test('the owner cannot use, change or hinder the role that ends sessions', () =>
    withSubject(async (subject) => {
      const spec = await subject.newSpec();
      await settle(subject, spec);
      const asAdmin = (sql: string) => subject.withClient(spec, (client) => client.query(sql));
      for (const sql of [
        'drop role howdah_control',
        "alter role howdah_control password 'x'",
        "alter role howdah_control set howdah.networks = 'all'",
        'grant howdah_control to tsdbadmin',
        "alter database postgres set work_mem = '1MB'",
        "alter database tsdb set howdah.networks = 'all'",
      ])
        await expect(asAdmin(sql), sql).rejects.toThrow(/permission denied|must be owner/);
      await asAdmin('revoke connect on database tsdb from public');
      const held = await holdSession(subject, spec);
      // A session whose role is dropped goes on with the rights of another one.
      await asAdmin('create role kept');
      await asAdmin("create role dropped login password 'password-of-it' in role kept");
      await asAdmin('grant connect on database tsdb to kept');
      const nameless = await holdSession(subject, spec, 'dropped', 'password-of-it');
      await asAdmin('drop role dropped');
      await settle(subject, { ...spec, provisioned: true, allowedNetworks: OTHERS });
      expect(await held()).toMatch(ENDED);
      expect(await nameless()).toMatch(ENDED);
      await removeAll(subject, spec.id);
    }));

  test('sessions of a service that an earlier release made are ended too', () =>
    withSubject(async (subject) => {
      const spec = await subject.newSpec();
      await settle(subject, spec);
      await makeOlder(subject, spec, BEFORE_CONTROL_ROLE);
      const held = await holdSession(subject, spec);
      await until('the networks are written', async () =>
        (
          await settle(subject, { ...spec, provisioned: true, allowedNetworks: OTHERS })
        ).steps.includes('write configuration'),
      );
      expect(await held()).toMatch(ENDED);
      await removeAll(subject, spec.id);
      expect(await subject.leftovers(spec.id)).toEqual([]);
    }));
});

/** Takes the role away, and the right that only a superuser can give it. */
const BEFORE_CONTROL_ROLE = {
  secretOf: controlSecret,
  database: 'postgres',
  sql:
    'revoke connect on database postgres from howdah_control; drop owned by howdah_control; ' +
    'drop role howdah_control',
};
