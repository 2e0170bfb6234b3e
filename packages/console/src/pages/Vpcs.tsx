import { NativeSelect, TextInput } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { Network } from 'lucide-react';
import { useId, useState } from 'react';
import {
  createVpc,
  networksQuery,
  vpcCalls,
  type Peering,
  type Vpc,
  type VpcWithPeerings,
} from '../api-project.ts';
import { Confirm } from '../components/Confirm.tsx';
import { Form, NameInput } from '../components/Form.tsx';
import { Card, CopyButton, Empty, Pill } from '../components/ui.tsx';
import { useCall } from '../components/use-call.tsx';
import { useRegions, useServices } from '../live.ts';
import { useMe } from '../session.ts';
import { whyReadOnly, type Tone } from '../status.ts';
import ui from './project.module.css';
import { ResourcePage } from './ResourcePage.tsx';

export function Vpcs() {
  const { project } = useMe();
  const vpcs = useQuery({ ...networksQuery(project.id), refetchInterval: 5000 });
  return (
    <ResourcePage
      title="VPCs"
      about={
        'A VPC is a private network. Only its clients, and those of its active peers, ' +
        'can connect to the services in it.'
      }
      what="change VPCs"
      form={<NewVpc />}
      query={vpcs}
      empty={
        <Empty icon={Network} title="No VPCs">
          Create a VPC and attach services to it. Only its clients, and those of its peers, can
          connect to them.
        </Empty>
      }
    >
      {(vpc, all) => <One key={vpc.id} vpc={vpc} others={all.filter(({ id }) => id !== vpc.id)} />}
    </ResourcePage>
  );
}

function NewVpc() {
  const me = useMe();
  const { data: regions } = useRegions();
  const [name, setName] = useState('');
  const [cidr, setCidr] = useState('10.10.0.0/24');
  const codes = regions?.map(({ code }) => code) ?? [];
  const [chosen, setRegion] = useState('');
  const region = chosen === '' ? (codes[0] ?? 'local') : chosen;
  const create = useCall(
    () => createVpc(me.project.id, { name: name.trim(), cidr: cidr.trim(), region_code: region }),
    {
      quiet: true,
      onDone: () => setName(''),
    },
  );
  const why = name.trim() === '' ? 'type a name first' : null;
  return (
    <Card title="New VPC" hint={`in the region ${region}`}>
      <Form call={create} why={why} onSubmit={() => create.run()} submit="Create the VPC" inline>
        <NameInput label="Name" placeholder="internal" value={name} onChange={setName} />
        <TextInput
          label="Addresses"
          placeholder="10.10.0.0/24"
          value={cidr}
          onChange={(event) => setCidr(event.currentTarget.value)}
        />
        {codes.length > 1 && (
          <NativeSelect
            label="Region"
            value={region}
            onChange={(event) => setRegion(event.currentTarget.value)}
            data={codes}
          />
        )}
      </Form>
    </Card>
  );
}

/** @param others the other VPCs of the project */
function One({ vpc, others }: { vpc: VpcWithPeerings; others: readonly Vpc[] }) {
  const me = useMe();
  const { data: services } = useServices();
  const remove = useCall(vpcCalls(me.project.id, vpc.id).delete);
  const inside =
    services?.filter(({ vpc_endpoint: endpoint }) => endpoint?.vpc_id === vpc.id) ?? [];
  return (
    <Card
      title={vpc.name}
      hint={
        <span className={ui.head}>
          <span className="mono">{vpc.id}</span>
          <CopyButton value={vpc.id} label="Copy the id" />
          <Confirm
            label="Delete"
            title={`Delete ${vpc.name}`}
            why={whyReadOnly(me) ?? whyInUse(inside.length, vpc.peerings.length)}
            pending={remove.pending}
            onConfirm={() => remove.run()}
          >
            Its network is removed. No service is in it, and it has no peering.
          </Confirm>
        </span>
      }
    >
      <div className={ui.vpc}>
        <div className={ui.net} role="group" aria-label={`Services in ${vpc.name}`}>
          <h3 className="mono">{vpc.cidr}</h3>
          <div className={ui.inside}>
            {inside.length === 0 && (
              <span className={ui.muted}>
                No services. Attach one on its page Network, or create one in this VPC.
              </span>
            )}
            {inside.map(({ service_id: id, name, vpc_endpoint: endpoint }) => (
              <Link key={id} to="/services/$id/network" params={{ id }} className={ui.chip}>
                {name} <span className={`mono ${ui.muted}`}>{endpoint?.host}</span>
              </Link>
            ))}
          </div>
        </div>
        <div className={ui.peers} role="group" aria-label={`Peerings of ${vpc.name}`}>
          {vpc.peerings.map((peering) => (
            <Peer key={peering.id} vpc={vpc} peering={peering} others={others} />
          ))}
          {whyReadOnly(me) === null && <NewPeering vpc={vpc} others={others} />}
        </div>
      </div>
    </Card>
  );
}

/** Why a VPC cannot be deleted; null: nothing is in it. */
function whyInUse(services: number, peerings: number): string | null {
  if (services > 0) return 'services are in this VPC: detach them first';
  return peerings > 0 ? 'this VPC has peerings: end them first' : null;
}

const TONE: Record<Peering['status'], Tone> = {
  pending: 'busy',
  approved: 'busy',
  active: 'good',
  invalid: 'bad',
  timeout: 'bad',
  disabled: 'idle',
};

function Peer({ vpc, peering, others }: { vpc: Vpc; peering: Peering; others: readonly Vpc[] }) {
  const me = useMe();
  const known = others.find(({ id }) => id === peering.peer_vpc_id);
  const end = useCall(vpcCalls(me.project.id, vpc.id).endPeering);
  return (
    <div className={ui.peer} {...(peering.status === 'active' ? { 'data-active': true } : {})}>
      <div className={`${ui.row} ${ui.between}`}>
        <span>
          {known?.name ?? 'VPC'}{' '}
          <span className={`mono ${ui.muted}`}>{known?.cidr ?? peering.peer_vpc_id}</span>
        </span>
        <Pill tone={TONE[peering.status]}>{peering.status}</Pill>
      </div>
      <p className={ui.muted} style={{ margin: '4px 0 8px' }}>
        {peering.error_message ??
          `project ${peering.peer_account_id}, region ${peering.peer_region_code}`}
      </p>
      <Confirm
        label="End"
        title="End the peering"
        why={whyReadOnly(me)}
        pending={end.pending}
        onConfirm={() => end.run(peering.id)}
      >
        The two networks no longer reach each other; open connections between them end.
      </Confirm>
    </div>
  );
}

function NewPeering({ vpc, others }: { vpc: Vpc; others: readonly Vpc[] }) {
  const me = useMe();
  const [project, setProject] = useState(me.project.id);
  const [peer, setPeer] = useState('');
  const create = useCall(
    () =>
      vpcCalls(me.project.id, vpc.id).peer({
        peer_account_id: project.trim(),
        peer_region_code: vpc.region_code,
        peer_vpc_id: peer.trim(),
      }),
    { quiet: true, onDone: () => setPeer('') },
  );
  const known = useId();
  const why = peer.trim() === '' ? 'type the id of the other VPC first' : null;
  return (
    <Form
      call={create}
      why={why}
      onSubmit={() => create.run()}
      submit="Peer"
      button={{ variant: 'default' }}
      inline
    >
      <TextInput
        label="Peer with the VPC"
        placeholder={others[0]?.id ?? '1001'}
        list={known}
        value={peer}
        onChange={(event) => setPeer(event.currentTarget.value)}
        style={{ flex: '1 1 120px' }}
      />
      <datalist id={known}>
        {others.map(({ id, name, cidr }) => (
          <option key={id} value={id}>
            {name} ({cidr})
          </option>
        ))}
      </datalist>
      <TextInput
        label="of the project"
        value={project}
        onChange={(event) => setProject(event.currentTarget.value)}
        style={{ flex: '1 1 120px' }}
      />
    </Form>
  );
}
