import { NativeSelect, Switch } from '@mantine/core';
import {
  CLIENT_SETUP,
  CLIENTS,
  isClientName,
  programOf,
  type ClientName,
} from '@howdah/contract/connect';
import { simulationNote } from '@howdah/contract/simulated';
import { SHARED_CPU_MILLIS } from '@howdah/contract/sizes';
import { waitingNote } from '@howdah/contract/waits';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState, type ReactNode } from 'react';
import { BASE, passwordOf, type Service } from '../../api.ts';
import { networksQuery } from '../../api-project.ts';
import { Steps } from '../../components/Steps.tsx';
import { ServiceName } from '../../components/names.tsx';
import { Ago, Card, Code, Facts, Notice, Until, Waiting } from '../../components/ui.tsx';
import { bytes, cores } from '../../format.ts';
import {
  useIsCpuBound,
  useOperations,
  useProblem,
  useThisService,
  useVpcName,
} from '../../live.ts';
import { useMe } from '../../session.ts';
import { shellQuoted, UNKNOWN_PASSWORD } from '../../snippets.ts';
import { kindLabel } from '../../status.ts';
import classes from './service.module.css';

export function Overview() {
  const service = useThisService();
  const { data: operations } = useOperations();
  const latest = operations?.[0];
  const problem = useProblem();
  return (
    <div className={`${classes.two} ${classes.wideLeft}`}>
      <div className={classes.stack}>
        <Connect service={service} />
        <Card title="About">
          <Facts
            rows={factsOf(
              service,
              useVpcName(service.vpc_endpoint?.vpc_id),
              useIsCpuBound(service),
            )}
          />
        </Card>
      </div>
      <div className={classes.stack}>
        <Card
          title="Latest operation"
          hint={latest === undefined ? undefined : <Ago iso={latest.created} />}
        >
          {latest === undefined ? (
            <Waiting rows={3} />
          ) : (
            <>
              <p className={classes.hint} style={{ marginBottom: 12 }}>
                {kindLabel(latest.kind)} {latest.status}
              </p>
              <Steps operation={latest} shownAbove={problem?.problem} />
            </>
          )}
        </Card>
        <Card title="In use" hint="now">
          <Usage service={service} />
        </Card>
      </div>
    </div>
  );
}

function Connect({ service }: { service: Service }) {
  const [kind, setKind] = useState<ClientName>('psql');
  const [verified, setVerified] = useState(false);
  const password = passwordOf(service.service_id);
  // In a VPC the public endpoint accepts no connections.
  const { host, port } = service.vpc_endpoint ?? service.endpoint;
  const target = { host, port, ca: verified ? 'ca.pem' : null };
  const written = password ?? UNKNOWN_PASSWORD;
  const isProgram = kind !== 'uri' && kind !== 'psql';
  const simulated = simulationNote(service);
  return (
    <Card title="Connect" hint={<span className="mono">{`${host}:${port}`}</span>}>
      <div className={classes.stack} style={{ gap: 14 }}>
        {simulated !== null && (
          <Notice tone="busy">
            <p>{simulated}</p>
          </Notice>
        )}
        {service.vpc_endpoint !== undefined && (
          <WhoConnects vpc={service.vpc_endpoint.vpc_id} name={service.name} />
        )}
        {password !== undefined && (
          <Notice tone="busy">
            <p>Save the password below now: only this tab shows it, until you close it.</p>
          </Notice>
        )}
        <NativeSelect
          aria-label="Client"
          description={CLIENT_SETUP[kind]}
          value={kind}
          onChange={({ currentTarget: { value } }) => isClientName(value) && setKind(value)}
          data={Object.entries(CLIENTS).map(([value, label]) => ({ value, label }))}
          style={{ justifySelf: 'start' }}
        />
        {isProgram && (
          <Code value={`export PGPASSWORD=${shellQuoted(written)}`} label="password" wrap />
        )}
        <Code value={programOf(kind, target, written)} label={`${CLIENTS[kind]} connection`} wrap />
        <div className={`${classes.row} ${classes.between}`}>
          <Switch
            checked={verified}
            onChange={(event) => setVerified(event.currentTarget.checked)}
            label="Check the server’s certificate"
            description="sslmode verify-full, the strictest of PostgreSQL"
          />
          <a href={`${BASE}/ca.pem`} download="ca.pem" className={classes.link}>
            Download ca.pem
          </a>
        </div>
        {password === undefined && (
          <p className={classes.hint}>
            Replace <code>{UNKNOWN_PASSWORD}</code> with the password that was shown when the
            service was created. Nobody can look it up. Set a new one in{' '}
            <Link
              to="/services/$id/settings"
              params={{ id: service.service_id }}
              className={classes.link}
            >
              Settings
            </Link>
            .
          </p>
        )}
      </div>
    </Card>
  );
}

/** Says from where a service in a VPC is reached, before a line that fails anywhere else. */
function WhoConnects({ vpc, name }: { vpc: string; name: string }) {
  const { project } = useMe();
  const { data: vpcs } = useQuery(networksQuery(project.id));
  const found = vpcs?.find(({ id }) => id === vpc);
  const peers = (found?.peerings ?? []).filter(({ status }) => status === 'active');
  const others = vpcs?.filter(({ id }) => peers.some(({ peer_vpc_id: peer }) => peer === id)) ?? [];
  const named = [
    ...others.map((other) => `${other.name} (${other.cidr})`),
    // VPCs of other projects have no names here.
    ...peers
      .map(({ peer_vpc_id: id }) => id)
      .filter((id) => !others.some((other) => other.id === id)),
  ];
  return (
    <Notice tone="busy">
      <p>
        Only clients in the VPC {found === undefined ? vpc : `${found.name} (${found.cidr})`}
        {named.length === 0
          ? ' can connect: it has no active peering.'
          : ` and in its peers can connect: ${named.join(', ')}.`}
      </p>
      <p>
        From anywhere else, the connection below does not work: docs/vpc.md says how a machine or a
        container joins the VPC. <code>howdah query {shellQuoted(name)} …</code> reads from
        everywhere, through the API.
      </p>
    </Notice>
  );
}

const address = ({ host, port }: { host: string; port: number }) => (
  <span className="mono">{`${host}:${port}`}</span>
);

function factsOf(
  service: Service,
  vpcName: string,
  isBound: boolean,
): (readonly [string, ReactNode])[] {
  const {
    created,
    expires_at: end,
    auto_suspend_seconds: suspend,
    suspended = false,
    pg_version: version,
    endpoint,
    connection_pooler: pooler,
    vpc_endpoint: vpc,
    ha_replicas: ha,
    forked_from: parent,
  } = service;
  const {
    cpu_millis: cpu,
    memory_gbs: memory,
    storage_gb: quota,
  } = service.resources[0]?.spec ?? {};
  return [
    [
      'Size',
      cpu === undefined ? 'shared' : `${cores(cpu)}${isBound ? ' at most' : ''}, ${memory} GB`,
    ],
    ['Storage', quota === undefined ? '–' : bytes(quota * 1e9)],
    ...(version === undefined ? [] : [['PostgreSQL', version] as const]),
    ['Created', <Ago key="created" iso={created} />],
    ...(suspend === undefined
      ? []
      : [['Sleep', suspended ? 'asleep' : `after ${suspend} s without use`] as const]),
    ...(end === undefined ? [] : [['Deleted', <Until key="end" iso={end} />] as const]),
    [
      'Standbys',
      ha.replica_count === 0
        ? 'none'
        : `${ha.replica_count}` +
          (ha.sync_replica_count > 0 ? `, ${ha.sync_replica_count} synchronous` : ''),
    ],
    ...(vpc === undefined ? [] : [[`In the VPC ${vpcName}`, address(vpc)] as const]),
    [vpc === undefined ? 'Endpoint' : 'Public endpoint (closed)', address(endpoint)],
    ['Pooler', pooler === undefined ? 'none' : address(pooler.endpoint)],
    ...service.read_replica_sets.map(
      (set) => [`Read replica set ${set.name}`, address(set.endpoint)] as const,
    ),
    ...(parent === undefined
      ? []
      : [['Forked from', <ServiceName key="parent" id={parent.service_id} />] as const]),
  ];
}

function Usage({ service }: { service: Service }) {
  const { memory_mb: memory, milli_cpu: cpu, storage_mb: storage } = service.metrics;
  const {
    cpu_millis: guaranteed = SHARED_CPU_MILLIS,
    memory_gbs: memoryLimit,
    storage_gb: quota,
  } = service.resources[0]?.spec ?? {};
  const waiting = waitingNote(service);
  if (memory === null && cpu === null && storage === null)
    return <p className={classes.hint}>Measured once a minute while the service runs.</p>;
  return (
    <div className={classes.meters}>
      <GuaranteeMeter used={cpu} guaranteed={guaranteed} />
      <Meter
        name="Memory"
        used={memory === null ? null : memory * 1e6}
        of={memoryLimit === undefined ? undefined : memoryLimit * 1e9}
        show={bytes}
      />
      <Meter
        name="Storage"
        used={storage === null ? null : storage * 1e6}
        of={quota === undefined ? undefined : quota * 1e9}
        show={bytes}
      />
      {waiting !== null && (
        <Notice tone="busy">
          <p>Just now, it {waiting}.</p>
        </Notice>
      )}
    </div>
  );
}

/** The CPU that is used, with a part of its own for what is beyond the guarantee. */
function GuaranteeMeter({ used, guaranteed }: { used: number | null; guaranteed: number }) {
  const inUse = used ?? 0;
  const beyond = Math.max(0, inUse - guaranteed);
  const percent = (part: number): string => `${(part / Math.max(inUse, guaranteed)) * 100}%`;
  return (
    <div>
      <div className={`${classes.meterHead} num`}>
        <span>CPU</span>
        <span>
          {used === null ? '–' : cores(used)} ({guaranteed / 1000} guaranteed)
        </span>
      </div>
      <div className={classes.bar}>
        <div style={{ width: percent(inUse - beyond) }} />
        {beyond > 0 && <div className={classes.beyond} style={{ width: percent(beyond) }} />}
      </div>
    </div>
  );
}

function Meter({
  name,
  used,
  of,
  show,
}: {
  name: string;
  used: number | null;
  of: number | undefined;
  show: (n: number) => string;
}) {
  return (
    <div>
      <div className={`${classes.meterHead} num`}>
        <span>{name}</span>
        <span>
          {used === null ? '–' : show(used)}
          {of !== undefined && ` of ${show(of)}`}
        </span>
      </div>
      {of !== undefined && (
        <div className={classes.bar}>
          <div style={{ width: `${Math.min(100, ((used ?? 0) / of) * 100)}%` }} />
        </div>
      )}
    </div>
  );
}
