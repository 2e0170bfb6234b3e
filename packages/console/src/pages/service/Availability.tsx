/** The primary, its standbys and read replica sets with their lag; switchover and drill. */
import { Modal, SegmentedControl, Switch } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { MAX_REPLICAS } from '@howdah/contract/types';
import { ArrowLeftRight, Server, Unplug } from 'lucide-react';
import { useState, type ReactNode } from 'react';
import { serviceCalls, type Member, type Operation, type Service } from '../../api.ts';
import type { ReplicaSet } from '../../api-project.ts';
import { Form } from '../../components/Form.tsx';
import { Load, ActionButton, Ago, Card, Empty, Notice, Pill } from '../../components/ui.tsx';
import { Steps } from '../../components/Steps.tsx';
import { useCall } from '../../components/use-call.tsx';
import { bytes, duration } from '../../format.ts';
import {
  useMembers,
  useOperations,
  useProblem,
  useReplicaSets,
  useThisService,
  useWhyImpossible,
} from '../../live.ts';
import { useMe } from '../../session.ts';
import { whyNot, type Tone } from '../../status.ts';
import { ReplicaSets } from './ReplicaSets.tsx';
import availability from './availability.module.css';
import classes from './service.module.css';

export function Availability() {
  const service = useThisService();
  const members = useMembers();
  const sets = useReplicaSets();
  const { data: operations } = useOperations();
  const { replica_count: count, sync_replica_count: sync } = service.ha_replicas;
  return (
    <Load query={members}>
      {(servers) => (
        <Load query={sets}>
          {(found) => (
            <div className={classes.stack}>
              <Card title="Now" hint="as the servers report it">
                <Picture service={service} members={servers} sets={found} />
              </Card>
              <div className={classes.two}>
                <Replicas key={`${count} ${sync}`} service={service} />
                <Rehearsal service={service} operations={operations ?? []} />
              </div>
              <ReplicaSets sets={found} />
            </div>
          )}
        </Load>
      )}
    </Load>
  );
}

const LOOK: Record<Member['state'], { tone: Tone; label: string }> = {
  running: { tone: 'good', label: 'accepts writes' },
  streaming: { tone: 'good', label: 'streaming' },
  catching_up: { tone: 'busy', label: 'catching up' },
  disconnected: { tone: 'bad', label: 'disconnected' },
  stopped: { tone: 'idle', label: 'stopped' },
};

function Picture({
  service,
  members,
  sets,
}: {
  service: Service;
  members: readonly Member[];
  sets: readonly ReplicaSet[];
}) {
  const endpoint = service.vpc_endpoint ?? service.endpoint;
  const followers = sets.length + members.length - 1;
  const primary = members.find(({ role }) => role === 'primary');
  const standbys = members.filter(({ role }) => role === 'standby');
  if (primary === undefined)
    return (
      <Empty icon={Server} title="No server yet">
        The servers are shown here once they are created.
      </Empty>
    );
  return (
    <div className={availability.picture} role="group" aria-label="Servers">
      <div className={availability.nodeBox}>
        <div className={availability.nodeHead}>Endpoint</div>
        <span className={`${classes.hint} mono`}>
          {endpoint.host}:{endpoint.port}
        </span>
      </div>
      <Wire moving={primary.state === 'running'} />
      <Node member={primary} />
      {followers > 0 && (
        <>
          <Wire moving={primary.state === 'running'} />
          <div className={availability.followers}>
            {standbys.map((standby) => (
              <Follower key={standby.node} follows={standby.state === 'streaming'}>
                <Node member={standby} />
              </Follower>
            ))}
            {sets.map((set) => (
              <Follower key={set.id} follows={set.node_states.some(({ serving }) => serving)}>
                <SetBox set={set} />
              </Follower>
            ))}
          </div>
        </>
      )}
    </div>
  );
}

function Follower({ follows, children }: { follows: boolean; children: ReactNode }) {
  return (
    <div className={availability.follower} {...(follows ? { 'data-following': true } : {})}>
      {children}
    </div>
  );
}

/** A set with its nodes, which are all asynchronous. */
function SetBox({ set }: { set: ReplicaSet }) {
  const { name, node_states: nodes } = set;
  const endpoint = set.vpc_endpoint ?? set.endpoint;
  return (
    <div
      className={availability.nodeBox}
      data-role="set"
      role="group"
      aria-label={`Read replica set ${name}`}
    >
      <div className={availability.nodeHead}>
        <span>
          {name} <span className={classes.hint}>read replica set</span>
        </span>
      </div>
      <span className={`${classes.hint} mono`}>
        {endpoint.host}:{endpoint.port}
      </span>
      <ul className={`${availability.setNodes} num`}>
        {nodes.map(({ node, serving, lag_bytes: lag, lag_seconds: lagSeconds, detail }) => (
          <li key={node} title={detail}>
            <Pill tone={serving ? 'good' : 'bad'}>node {node}</Pill>{' '}
            {serving ? lagOf('asynchronous', lag, lagSeconds) : detail}
          </li>
        ))}
      </ul>
    </div>
  );
}

/** Whether a standby is synchronous, and its lag. */
function lagOf(
  sync: 'synchronous' | 'asynchronous',
  lagBytes: number | null,
  lagSeconds: number | null,
): string {
  const far = lagBytes === null ? null : lagBytes === 0 ? 'no lag' : `${bytes(lagBytes)} behind`;
  return [sync, far, lagSeconds === null || lagBytes === 0 ? null : duration(lagSeconds * 1000)]
    .filter((part) => part !== null)
    .join(' · ');
}

function Node({
  member: { node, role, state, synchronous, lag_bytes: lag, lag_seconds: lagSeconds },
}: {
  member: Member;
}) {
  const { tone, label } = LOOK[state];
  return (
    <div
      className={availability.nodeBox}
      data-role={role}
      role="group"
      aria-label={`Node ${node}: ${role}`}
    >
      <div className={availability.nodeHead}>
        <span>
          {role === 'primary' ? 'Primary' : 'Standby'}{' '}
          <span className={classes.hint}>node {node}</span>
        </span>
        <Pill tone={tone}>{label}</Pill>
      </div>
      <span className={`${classes.hint} num`}>
        {role === 'primary'
          ? 'reads and writes'
          : lagOf(synchronous ? 'synchronous' : 'asynchronous', lag, lagSeconds)}
      </span>
    </div>
  );
}

function Wire({ moving }: { moving: boolean }) {
  return (
    <svg className={availability.wire} viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden>
      <path d="M0 50 H100" className={moving ? availability.flow : ''} />
    </svg>
  );
}

function Replicas({ service }: { service: Service }) {
  const me = useMe();
  const impossible = useWhyImpossible(service);
  const { replica_count: count, sync_replica_count: sync } = service.ha_replicas;
  const [wanted, setWanted] = useState({ count, sync });
  const set = useCall(
    () =>
      serviceCalls(me.project.id, service).setHA({
        replica_count: wanted.count,
        sync_replica_count: wanted.sync,
      }),
    { quiet: true },
  );
  const same = wanted.count === count && wanted.sync === sync;
  return (
    <Card title="Standbys">
      <Form
        call={set}
        why={
          whyNot('setHA', service, me) ??
          impossible('setHA') ??
          (same ? 'nothing is changed' : null)
        }
        onSubmit={() => set.run()}
        submit="Apply"
      >
        <p className={classes.hint}>
          A standby follows the primary and takes over within a fraction of a second when it dies.
          The endpoint stays the same.
        </p>
        <SegmentedControl
          aria-label="Standbys"
          value={String(wanted.count)}
          onChange={(value) =>
            setWanted(({ sync: old }) => ({
              count: Number(value),
              sync: Math.min(old, Number(value)),
            }))
          }
          data={Array.from({ length: MAX_REPLICAS + 1 }, (_, n) => ({
            value: String(n),
            label: n === 0 ? 'None' : String(n),
          }))}
        />
        <Switch
          disabled={wanted.count === 0}
          checked={wanted.sync > 0}
          onChange={(event) => {
            const { checked } = event.currentTarget;
            setWanted((old) => ({ ...old, sync: checked ? 1 : 0 }));
          }}
          label="Lose nothing"
          description={
            wanted.count === 0
              ? 'this needs a standby'
              : 'each write is on a standby before it is acknowledged, which takes a little longer'
          }
        />
      </Form>
    </Card>
  );
}

/**
 * The newest operation that changed who the primary is, and the newest drill with what it measured.
 */
function Rehearsal({
  service,
  operations,
}: {
  service: Service;
  operations: readonly Operation[];
}) {
  // The failover that a drill causes is an operation of its own.
  const last =
    operations.find(({ kind }) => kind === 'drill' || kind === 'switchover') ??
    operations.find(({ kind }) => kind === 'failover');
  const measured = operations
    .find(({ kind }) => kind === 'drill')
    ?.steps.find(({ name }) => name === 'drill');
  const me = useMe();
  const problem = useProblem();
  const calls = serviceCalls(me.project.id, service);
  const [drilling, { open, close }] = useDisclosure(false);
  const switchover = useCall(calls.switchover);
  const impossible = useWhyImpossible(service);
  const alone =
    service.ha_replicas.replica_count === 0
      ? 'the service has no standby: add one under Standbys'
      : null;
  return (
    <Card
      title="Switchover and drill"
      hint={last === undefined ? undefined : <Ago iso={last.created} />}
    >
      <div className={classes.stack} style={{ gap: 14 }}>
        <p className={classes.hint}>
          A switchover exchanges primary and standby and loses nothing. A drill does the same, or
          kills the primary, while Howdah writes probes. It measures the write gap and the lost
          probes.
        </p>
        <div className={classes.row}>
          <ActionButton
            leftSection={<ArrowLeftRight size={16} />}
            why={whyNot('switchover', service, me) ?? impossible('switchover') ?? alone}
            loading={switchover.pending}
            onClick={() => switchover.run()}
          >
            Switch over
          </ActionButton>
          <ActionButton
            variant="default"
            leftSection={<Unplug size={16} />}
            why={whyNot('drill', service, me) ?? impossible('drill') ?? alone}
            onClick={open}
          >
            Drill…
          </ActionButton>
        </div>
        {measured?.outcome === 'ok' && (
          <Notice tone="good">
            <p>
              The last drill, <Ago iso={measured.started} />: {measured.detail}
            </p>
          </Notice>
        )}
        {last !== undefined &&
          (last.kind !== 'drill' || last.finished === null || last.status === 'failed') && (
            <Steps operation={last} shownAbove={problem?.problem} />
          )}
      </div>
      <Modal
        opened={drilling}
        onClose={close}
        title="Failover drill"
        closeButtonProps={{ 'aria-label': 'Close' }}
      >
        <Drill service={service} onDone={close} />
      </Modal>
    </Card>
  );
}

function Drill({ service, onDone }: { service: Service; onDone: () => void }) {
  const me = useMe();
  const [kind, setKind] = useState<'failover' | 'switchover'>('switchover');
  const drill = useCall(() => serviceCalls(me.project.id, service).drill({ kind }), {
    quiet: true,
    onDone,
  });
  return (
    <Form call={drill} why={null} onSubmit={() => drill.run()} submit="Start the drill">
      <SegmentedControl<'failover' | 'switchover'>
        aria-label="Kind of drill"
        value={kind}
        onChange={setKind}
        data={[
          { value: 'switchover', label: 'Switch over' },
          { value: 'failover', label: 'Kill the primary' },
        ]}
      />
      {kind === 'failover' && (
        <Notice tone="warn">
          <p>The primary is killed. Its sessions end; clients have to connect again.</p>
        </Notice>
      )}
    </Form>
  );
}
