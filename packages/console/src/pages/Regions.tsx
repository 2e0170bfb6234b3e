import { HowdahError } from '@howdah/client';
import { useQuery } from '@tanstack/react-query';
import { MapPin } from 'lucide-react';
import type { Region } from '../api.ts';
import { clustersQuery, doctorQuery, type Cluster, type Finding } from '../api-project.ts';
import { Findings, ClusterFacts, NewCluster } from './Clusters.tsx';
import { Load, Card, Empty, PageHead, Unread } from '../components/ui.tsx';
import { cores } from '../format.ts';
import { useRegions } from '../live.ts';
import { TYPE_NAMES } from '../status.ts';
import ui from './project.module.css';

export function Regions() {
  return (
    <>
      <PageHead
        title="Regions"
        about={
          'The types and features that each region has, ' +
          'and the command that adds a missing one.'
        }
      />
      <div className={ui.stack}>
        <Load query={useRegions()}>{(regions) => <List regions={regions} />}</Load>
      </div>
    </>
  );
}

function List({ regions }: { regions: readonly Region[] }) {
  const { data: clusters, error } = useQuery(clustersQuery);
  const isServed = (code: string) => regions.some((region) => region.code === code);
  return (
    <>
      {regions.length === 0 && (
        <Card>
          <Empty icon={MapPin} title="No region">
            The engine of this machine creates a region when it starts. A Kubernetes cluster is
            added.
          </Empty>
        </Card>
      )}
      {regions.map((region) => (
        <RegionCard
          key={region.code}
          region={region}
          cluster={clusters?.find(({ code }) => code === region.code)}
        />
      ))}
      {clusters
        ?.filter(({ code }) => !isServed(code))
        .map((cluster) => (
          <Card key={cluster.code} title={cluster.code} hint="not served: the log says why">
            <ClusterFacts cluster={cluster} />
          </Card>
        ))}
      <Doctor />
      {/* Operators only may read clusters, and add one. */}
      {isRefused(error) ? null : clusters === undefined ? (
        <Unread error={error} rows={3} />
      ) : (
        <NewCluster />
      )}
    </>
  );
}

/** The findings of `howdah doctor`, for the operator. */
function Doctor() {
  const { data, error } = useQuery(doctorQuery);
  return (
    <Card title="This machine" hint="as howdah doctor reports it">
      {data !== undefined ? (
        <Findings findings={data} />
      ) : isRefused(error) ? (
        <p className={ui.muted}>{error.message}.</p>
      ) : (
        <Unread error={error} rows={8} />
      )}
    </Card>
  );
}
const isRefused = (error: unknown): error is HowdahError =>
  error instanceof HowdahError && error.status === 403;

/** @param cluster that of a region on Kubernetes, for operators */
function RegionCard({ region, cluster }: { region: Region; cluster: Cluster | undefined }) {
  const smallest = region.sizes[0];
  const largest = region.sizes.at(-1);
  const sizes =
    smallest === undefined || largest === undefined
      ? 'none'
      : `${cores(smallest.cpu_millis)} to ${cores(largest.cpu_millis)}`;
  return (
    <Card title={region.code} hint={`engine ${region.engine}`}>
      <div className={ui.stack}>
        {cluster !== undefined && <ClusterFacts cluster={cluster} />}
        <Findings
          findings={[
            ...(region.warnings ?? []).map(({ message }): Finding => ({
              what: 'Warning',
              state: 'note',
              found: message,
            })),
            ...region.service_types.map(({ service_type: type, versions, ...capability }) =>
              withOthers(capabilityOf(TYPE_NAMES[type], 'on PostgreSQL', capability), versions),
            ),
            capabilityOf('Connection pooler', 'PgBouncer', region.pooler),
            capabilityOf('High availability', 'HAProxy', region.high_availability),
            { what: 'Sizes', state: 'ok', found: sizes },
            {
              what: 'Limits',
              state: region.limits_enforced ? 'ok' : 'note',
              found: region.limits_note,
            },
            {
              what: 'Forks and snapshots',
              state: region.clone_method === 'copy' ? 'note' : 'ok',
              found: region.fork_cost,
            },
            {
              what: 'VPCs',
              state: region.vpc.method === 'bridge' ? 'ok' : 'note',
              found: region.vpc.note,
            },
          ]}
        />
      </div>
    </Card>
  );
}

function capabilityOf(
  what: string,
  program: string,
  { available, version, reason }: Region['pooler'],
): Finding {
  return available
    ? { what, state: 'ok', found: `${program} ${version ?? ''}` }
    : { what, state: 'missing', found: reason ?? 'not available' };
}

/** Names the other versions of PostgreSQL that a service may ask for, and what others lack. */
function withOthers(
  finding: Finding,
  versions: Region['service_types'][number]['versions'],
): Finding {
  if (finding.state !== 'ok') return finding;
  const offered = versions.flatMap(({ version, available }) =>
    available && version !== undefined && !finding.found.endsWith(` ${version}`) ? [version] : [],
  );
  const reasons = versions.flatMap(({ reason }) => reason ?? []);
  return {
    ...finding,
    found: [finding.found, ...offered].join(', '),
    ...(reasons.length === 0 ? {} : { remedy: reasons.join('; ') }),
  };
}
