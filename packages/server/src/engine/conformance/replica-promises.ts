/** Promises about replicas: failover, switchover, drills, and read replica sets. */
import assert from 'node:assert/strict';
import type { ServiceSpec } from '../spec.ts';
import {
  can,
  hasGateway,
  replicated,
  settle,
  settling,
  until,
  withReplicas,
  withService,
  type Promised,
  type Subject,
} from './subject.ts';

const HA_PROMISES: readonly Promised[] = [
  { name: 'a primary is recorded before it is one', check: recordedFirst },
  { name: 'the standbys follow after a failover', check: standbysFollow },
  { name: 'a failover keeps acknowledged writes', check: failoverKeepsWrites },
  { name: 'a failover is reported with its steps', check: failoverReported },
  { name: 'another recorded primary is obeyed', check: recordedObeyed },
  { name: 'a switchover changes the primary as asked', check: switchoverAsAsked },
  { name: 'a switchover is satisfied by a failover', check: failoverSatisfies },
  { name: 'a requested drill is taken once', check: drillTakenOnce },
  { name: 'a missing standby is warned of until it follows', check: missingStandby },
  { name: 'a standby is added and removed while the service runs', check: addedAndRemoved },
].map((promise) => ({ ...promise, applies: hasGateway }));

const SET_PROMISES: readonly Promised[] = [
  { name: 'a read replica set routes to its nodes', check: setRoutes },
  { name: 'a read replica set has the data of its service', check: setHasData },
].map((promise) => ({ ...promise, applies: can('createReplicaSet') }));

export const REPLICA_PROMISES: readonly Promised[] = [...HA_PROMISES, ...SET_PROMISES];

const rolesOf = async ({ engine }: Subject, id: string): Promise<Record<number, string>> =>
  Object.fromEntries((await engine.observe.servers(id)).map(({ node, role }) => [node, role]));

/** Kills the primary, and waits until the other one is recorded. */
async function failOver(subject: Subject, spec: ServiceSpec): Promise<void> {
  await subject.kill(spec.id, 0);
  await until(subject, 'a failover', async () => subject.records.primary(spec.id) === 1);
}

function recordedFirst(subject: Subject): Promise<void> {
  return withReplicas(subject, async (spec) => {
    const rolesThen: Record<number, string>[] = [];
    subject.records.onRecord(async (id) => {
      if (id === spec.id) rolesThen.push(await rolesOf(subject, id));
    });
    await failOver(subject, spec);
    assert.equal(rolesThen[0]?.[1], 'standby', 'it was a standby when it was recorded');
    await settle(subject, spec);
    assert.deepEqual(await rolesOf(subject, spec.id), { 0: 'standby', 1: 'primary' });
  });
}

function standbysFollow(subject: Subject): Promise<void> {
  return withReplicas(subject, async (spec) => {
    await failOver(subject, spec);
    const { last } = await settle(subject, spec);
    assert.equal(last.seen.reachable, true);
    const servers = await subject.engine.observe.servers(spec.id);
    const states = Object.fromEntries(servers.map(({ node, state }) => [node, state]));
    assert.deepEqual(states, { 0: 'streaming', 1: 'running' });
  });
}

function failoverKeepsWrites(subject: Subject): Promise<void> {
  return withReplicas(subject, async (spec) => {
    await subject.insertRows(spec, 9);
    await failOver(subject, spec);
    await settle(subject, spec);
    assert.equal(await subject.countRows(spec), 9);
    await subject.insertRows(spec, 1);
    assert.equal(await subject.countRows(spec), 10);
  });
}

function failoverReported(subject: Subject): Promise<void> {
  return withReplicas(subject, async (spec) => {
    const { records } = subject;
    await failOver(subject, spec);
    const ended = () => records.ended.find(({ id }) => id === spec.id);
    // The end of a failover is reported after the record; an engine may leave it to the next step.
    await settle(subject, spec);
    await until(subject, 'its end is reported', async () => ended() !== undefined);
    assert.ok(records.begun.includes(spec.id), 'it was shown when it began');
    const steps = ended()?.steps ?? [];
    assert.deepEqual([ended()?.why, steps.length > 0], [null, true]);
    assert.ok(
      steps.every(({ finished }) => finished !== null),
      'each step has ended',
    );
  });
}

function recordedObeyed(subject: Subject): Promise<void> {
  return withReplicas(subject, async (spec) => {
    await settle(subject, spec);
    // Another control plane has recorded it, and ended before it did anything.
    subject.records.add(spec.id, 1);
    await subject.recreate();
    const { last } = await settle(subject, spec);
    assert.equal(last.seen.reachable, true);
    assert.deepEqual(await rolesOf(subject, spec.id), { 0: 'standby', 1: 'primary' });
  });
}

function switchoverAsAsked(subject: Subject): Promise<void> {
  return withReplicas(subject, async (spec) => {
    await subject.insertRows(spec, 6);
    subject.records.ask(spec.id, { switchover: true });
    const { steps } = await settle(subject, spec);
    assert.ok(steps.includes('switch over to member 1'), steps.join(', '));
    assert.equal(subject.records.primary(spec.id), 1);
    assert.deepEqual(await rolesOf(subject, spec.id), { 0: 'standby', 1: 'primary' });
    assert.equal(await subject.countRows(spec), 6);
  });
}

/** The primary dies before the switchover begins; the spec was read before that. */
function failoverSatisfies(subject: Subject): Promise<void> {
  return withReplicas(subject, async (spec) => {
    const { ha } = spec;
    if (ha === null) return assert.fail('it has replicas');
    subject.records.ask(spec.id, { switchover: true });
    await failOver(subject, spec);
    const asked = { ...spec, ha: { ...ha, switchover: true } };
    const { steps } = await settle(subject, asked, undefined, () => asked);
    assert.ok(!steps.some((step) => step.startsWith('switch over')), steps.join(', '));
    assert.equal(subject.records.primary(spec.id), 1);
    assert.deepEqual(await rolesOf(subject, spec.id), { 0: 'standby', 1: 'primary' });
  });
}

function drillTakenOnce(subject: Subject): Promise<void> {
  return withReplicas(subject, async (spec) => {
    subject.records.ask(spec.id, { drill: 'failover' });
    const { steps } = await settle(subject, spec);
    assert.equal(steps.filter((step) => step === 'drill').length, 1, steps.join(', '));
    assert.equal(subject.records.drillsTaken.filter((id) => id === spec.id).length, 1);
    assert.equal(subject.records.primary(spec.id), 1);
  });
}

function missingStandby(subject: Subject): Promise<void> {
  return withReplicas(subject, async (spec) => {
    const isWarned = async (): Promise<boolean> =>
      (await subject.engine.observe.warnings(spec.id)).some(
        ({ code }) => code === 'REPLICA_MISSING',
      );
    assert.equal(await isWarned(), false, 'while it follows');
    await subject.kill(spec.id, 1);
    await until(subject, 'a warning', isWarned);
    await settle(subject, spec);
    assert.equal(await isWarned(), false, 'after its repair');
  });
}

function addedAndRemoved(subject: Subject): Promise<void> {
  return withService(subject, {}, async (spec) => {
    await subject.insertRows(spec, 2);
    const wanted = replicated(subject, spec, 1);
    await settle(subject, wanted);
    assert.deepEqual(await rolesOf(subject, spec.id), { 0: 'primary', 1: 'standby' });
    const { ha } = wanted;
    if (ha === null) return assert.fail('it has replicas');
    const alone = { ...wanted, ha: { ...ha, replicas: 0, sync: 0 } };
    await settle(subject, alone);
    assert.deepEqual(await rolesOf(subject, spec.id), { 0: 'primary' });
    assert.equal(await subject.countRows(spec), 2);
  });
}

async function withSet(
  subject: Subject,
  work: (set: ServiceSpec, service: ServiceSpec) => Promise<void>,
): Promise<void> {
  await withService(subject, {}, async (service) => {
    const base = await subject.newSpec();
    const set: ServiceSpec = {
      ...base,
      firstVerifier: null,
      set: { parent: service.id, nodes: 1, purpose: 'reports' },
    };
    await settling(subject, set, (spec) => work(spec, service));
  });
}

function setRoutes(subject: Subject): Promise<void> {
  return withSet(subject, async (set) => {
    const isServing = async (): Promise<boolean> =>
      (await subject.engine.observe.replicas(set.id)).every(({ serving }) => serving);
    await until(subject, 'its nodes are routed to', isServing);
    const { last } = await settle(subject, set);
    assert.equal(last.seen.reachable, true);
    assert.equal(await subject.listens(set.endpoint.port), true);
  });
}

function setHasData(subject: Subject): Promise<void> {
  return withSet(subject, async (set, service) => {
    await subject.insertRows(service, 4);
    await until(subject, 'its rows are there', async () => (await subject.countRows(set)) === 4);
  });
}
