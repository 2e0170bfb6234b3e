/** The read replica sets of a service: each an endpoint of its own, balanced over its nodes. */
import { NativeSelect, NumberInput } from '@mantine/core';
import { NODE_SIZES } from '@howdah/contract/sizes';
import { MAX_NODES, SET_PURPOSES, type SetPurpose } from '@howdah/contract/types';
import { Layers } from 'lucide-react';
import { useState } from 'react';
import { setCalls, type ReplicaSet } from '../../api-project.ts';
import { Confirm } from '../../components/Confirm.tsx';
import { Form, NameInput } from '../../components/Form.tsx';
import { ActionButton, Card, CopyButton, Denied, Empty, Pill } from '../../components/ui.tsx';
import { useCall } from '../../components/use-call.tsx';
import { cores } from '../../format.ts';
import { useFindRegion, useThisService, useWhyImpossible } from '../../live.ts';
import { useMe } from '../../session.ts';
import { NO_ROOM, whyDenied, whyNot, type Tone } from '../../status.ts';
import availability from './availability.module.css';
import classes from './service.module.css';

const TONE: Record<ReplicaSet['status'], Tone> = {
  creating: 'busy',
  active: 'good',
  resizing: 'busy',
  deleting: 'busy',
  error: 'bad',
};
/** The sizes of nodes; those that the region of the service has no room for cannot be chosen. */
function useSizes(): { value: string; label: string; disabled: boolean }[] {
  const sizes = useFindRegion()(useThisService().region_code)?.sizes ?? [];
  const hasRoom = (cpu: number) => sizes.find((one) => one.cpu_millis === cpu)?.has_room !== false;
  return NODE_SIZES.map(({ cpuMillis, memoryGbs }) => ({
    value: String(cpuMillis),
    label: `${cores(cpuMillis)}, ${memoryGbs} GB${hasRoom(cpuMillis) ? '' : `: ${NO_ROOM}`}`,
    disabled: !hasRoom(cpuMillis),
  }));
}

export function ReplicaSets({ sets }: { sets: readonly ReplicaSet[] }) {
  const denied = whyDenied('createReplicaSet', useThisService(), useMe());
  return (
    <Card title="Read replica sets" hint="reads, on endpoints of their own" flush>
      {sets.length === 0 && (
        <Empty icon={Layers} title="No read replica sets">
          A set has up to {MAX_NODES} nodes behind one port. A node whose lag is too large gets no
          connections until it has caught up.
        </Empty>
      )}
      <div className={availability.sets}>
        {sets.map((set) => (
          <One key={set.id} set={set} />
        ))}
        {denied === null ? <NewSet /> : <Denied what="create read replica sets" why={denied} />}
      </div>
    </Card>
  );
}

function One({ set }: { set: ReplicaSet }) {
  const me = useMe();
  const service = useThisService();
  const calls = setCalls(me.project.id, service.service_id);
  const setPooler = useCall(calls.setPooler);
  const { connection_pooler: pooler, vpc_endpoint: inside } = set;
  const { host, port } = inside ?? set.endpoint;
  return (
    <div className={availability.set} role="group" aria-label={`Set ${set.name}`}>
      <div className={`${classes.row} ${classes.between}`}>
        <div className={classes.row}>
          <strong>{set.name}</strong>
          <Pill tone={TONE[set.status]}>{set.status}</Pill>
          <Address name="endpoint" host={host} port={port} />
          {pooler !== undefined && (
            <Address
              name="pooler"
              host={inside?.host ?? pooler.endpoint.host}
              port={pooler.endpoint.port}
            />
          )}
        </div>
        <div className={classes.row}>
          <ActionButton
            variant="default"
            size="xs"
            why={whyNot('changeReplicaSet', service, me) ?? whyNoChange(set)}
            loading={setPooler.pending}
            onClick={() => setPooler.run(set, pooler === undefined)}
          >
            {pooler === undefined ? 'Enable the pooler' : 'Disable the pooler'}
          </ActionButton>
          <Delete set={set} />
        </div>
      </div>
      <Resize key={set.cpu_millis} set={set} />
      <Purpose key={set.purpose} set={set} />
    </div>
  );
}

/** Deletes the set. */
function Delete({ set }: { set: ReplicaSet }) {
  const me = useMe();
  const service = useThisService();
  const remove = useCall(setCalls(me.project.id, service.service_id).delete);
  return (
    <Confirm
      label="Delete"
      title={`Delete ${set.name}`}
      why={whyNot('deleteReplicaSet', service, me, set)}
      pending={remove.pending}
      onConfirm={() => remove.run(set)}
    >
      Its endpoint closes. The service and its data stay.
    </Confirm>
  );
}

/** Why a set cannot be changed now, whatever its service allows. */
const whyNoChange = ({ status }: ReplicaSet): string | null =>
  status === 'active' ? null : `the set is ${status}: it can be changed when it is active`;

function Address({ name, host, port }: { name: string; host: string; port: number }) {
  const address = `${host}:${port}`;
  return (
    <span className={availability.address}>
      {name} <span className="mono">{address}</span>
      <CopyButton value={address} label={`Copy the ${name}`} />
    </span>
  );
}

function Resize({ set }: { set: ReplicaSet }) {
  const me = useMe();
  const service = useThisService();
  const now = String(set.cpu_millis);
  const [size, setSize] = useState(now);
  const sizes = useSizes();
  const resize = useCall(setCalls(me.project.id, service.service_id).resize, { quiet: true });
  const why =
    whyNot('changeReplicaSet', service, me) ??
    whyNoChange(set) ??
    (size === now ? 'the size is unchanged' : null);
  return (
    <Form
      call={resize}
      why={why}
      onSubmit={() => resize.run(set, Number(size))}
      submit="Resize"
      button={{ variant: 'default' }}
      inline
    >
      <NativeSelect
        label={`Size of ${set.nodes === 1 ? 'its node' : `each of its ${set.nodes} nodes`}`}
        description="one node after the other: the endpoint stays open where there are several"
        value={size}
        onChange={(event) => setSize(event.currentTarget.value)}
        data={sizes.map((one) => (one.value === now ? { ...one, disabled: false } : one))}
      />
    </Form>
  );
}

const PURPOSES: Record<SetPurpose, string> = {
  reports: 'reports: long queries end; the primary keeps the rows that they see',
  lookups: 'lookups: short queries; one in the way of a change is cancelled after 30 s',
};
const PURPOSE_CHOICES = SET_PURPOSES.map((value) => ({ value, label: PURPOSES[value] }));

function Purpose({ set }: { set: ReplicaSet }) {
  const me = useMe();
  const service = useThisService();
  const [purpose, setPurpose] = useState(set.purpose);
  const change = useCall(setCalls(me.project.id, service.service_id).setPurpose, { quiet: true });
  const why =
    whyNot('changeReplicaSet', service, me) ??
    (purpose === set.purpose ? 'the purpose is unchanged' : null);
  return (
    <Form
      call={change}
      why={why}
      onSubmit={() => change.run(set, purpose)}
      submit="Set the purpose"
      button={{ variant: 'default' }}
      inline
    >
      <NativeSelect
        label="Purpose"
        value={purpose}
        onChange={(event) => setPurpose(purposeOf(event.currentTarget.value))}
        data={PURPOSE_CHOICES}
      />
    </Form>
  );
}

const purposeOf = (value: string): SetPurpose =>
  SET_PURPOSES.find((one) => one === value) ?? 'reports';

function NewSet() {
  const me = useMe();
  const service = useThisService();
  const [name, setName] = useState('');
  const [nodes, setNodes] = useState(1);
  const [cpu, setCpu] = useState('500');
  const impossible = useWhyImpossible(service);
  const sizes = useSizes();
  const create = useCall(
    () =>
      setCalls(me.project.id, service.service_id).create({
        name: name.trim(),
        nodes,
        cpu_millis: Number(cpu),
        memory_gbs: NODE_SIZES.find(({ cpuMillis }) => String(cpuMillis) === cpu)?.memoryGbs ?? 0,
      }),
    { quiet: true, onDone: () => setName('') },
  );
  const why =
    whyNot('createReplicaSet', service, me) ??
    impossible('createReplicaSet') ??
    (name.trim() === '' ? 'type a name first' : null);
  return (
    <div className={availability.set}>
      <Form call={create} why={why} onSubmit={() => create.run()} submit="Add the set" inline>
        <NameInput
          label="Name of a new set"
          placeholder="reports"
          value={name}
          onChange={setName}
        />
        <NumberInput
          label="Nodes"
          min={1}
          max={MAX_NODES}
          w={90}
          value={nodes}
          onChange={(value) => setNodes(Number(value))}
        />
        <NativeSelect
          label="Size of each"
          value={cpu}
          onChange={(event) => setCpu(event.currentTarget.value)}
          data={sizes}
        />
      </Form>
    </div>
  );
}
