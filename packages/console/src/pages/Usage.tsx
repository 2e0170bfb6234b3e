import { largestFirst } from '@howdah/contract/usage';
import { RETENTION_DAYS } from '@howdah/contract/values';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { Region } from '../api.ts';
import { projectQuery, usageQuery, type ServiceUsage } from '../api-project.ts';
import { Rows } from '../components/Rows.tsx';
import { Load, Ago, Card, LinkButton, PageHead } from '../components/ui.tsx';
import { bytes, cores, days } from '../format.ts';
import { useRegions } from '../live.ts';
import { useMe } from '../session.ts';
import classes from './service/service.module.css';
import ui from './project.module.css';

/** The counted resources and their format. */
const COUNTED = [
  { name: 'services', label: 'Services', show: String },
  { name: 'replica_sets', label: 'Read replica sets', show: String },
  { name: 'cpu_millis', label: 'CPU guaranteed', show: cores },
  { name: 'memory_gbs', label: 'Memory', show: (gbs: number) => `${gbs} GB` },
] as const;

export function Usage() {
  const { project } = useMe();
  const query = useQuery({ ...projectQuery(project.id), refetchInterval: 5000 });
  return (
    <>
      <PageHead
        title="Usage"
        about="What this project uses, its limits, and what the machines have."
      />
      <div className={ui.stack}>
        <Load query={query}>
          {({ name, created, used, in_use: inUse, limits }) => (
            <Card
              title={name}
              hint={
                <>
                  created <Ago iso={created} />
                </>
              }
            >
              <div className={classes.meters}>
                {COUNTED.map(({ name: counted, label, show }) => {
                  const limit = limits[counted] ?? null;
                  const usedPart = limit === 0 ? 1 : Math.min(1, used[counted] / (limit ?? 1));
                  return (
                    <div key={counted}>
                      <div className={`${classes.meterHead} num`}>
                        <span>{label}</span>
                        <span>
                          {show(used[counted])}
                          {limit === null ? ', no limit' : ` of ${show(limit)}`}
                        </span>
                      </div>
                      {limit !== null && (
                        <div className={classes.bar}>
                          <div style={{ width: `${usedPart * 100}%` }} />
                        </div>
                      )}
                    </div>
                  );
                })}
                <div className={`${classes.meterHead} num`}>
                  <span>CPU in use now</span>
                  <span>
                    {cores(inUse.cpu_millis)}
                    {inUse.cpu_beyond_millis > 0 &&
                      `, ${cores(inUse.cpu_beyond_millis)} of it beyond the guarantees`}
                  </span>
                </div>
                <div className={`${classes.meterHead} num`}>
                  <span>Longest backup retention</span>
                  <span>{days(limits.backup_retention_days ?? RETENTION_DAYS.max)}</span>
                </div>
              </div>
            </Card>
          )}
        </Load>
        <Load query={useRegions()}>
          {(regions) => (
            <div className={ui.stack}>
              {regions.map((region) => (
                <Machine key={region.code} region={region} />
              ))}
              {/* The disk is measured first: nothing may be below the list that would jump. */}
              <OfServices />
            </div>
          )}
        </Load>
      </div>
    </>
  );
}

const MB = 1_000_000;
/** The disk is measured for each answer: it is not asked for more often. */
const MEASURED_MS = 60_000;
/** Services that are shown at first, the largest. */
const FIRST = 20;

/** @param mb null: not known */
function Size({ mb }: { mb: number | null }) {
  return mb === null ? null : <span style={{ whiteSpace: 'nowrap' }}>{bytes(mb * MB)}</span>;
}
/** Memory and disk of each service, the largest first, with the reason. */
function OfServices() {
  const { project } = useMe();
  const [isWhole, setIsWhole] = useState(false);
  const query = useQuery({ ...usageQuery(project.id), refetchInterval: MEASURED_MS });
  return (
    <Load query={query}>
      {(found) => {
        const sorted = found.toSorted(largestFirst);
        if (sorted.length === 0) return null;
        return (
          <Card title="What each service takes" hint="the largest first" flush>
            <Rows
              rows={isWhole ? sorted : sorted.slice(0, FIRST)}
              idOf={({ service_id: id }) => id}
              columns={columnsOf(new Map(found.map((one) => [one.service_id, one.name])))}
            />
            {!isWhole && sorted.length > FIRST && (
              <LinkButton onClick={() => setIsWhole(true)}>Show all {sorted.length}</LinkButton>
            )}
          </Card>
        );
      }}
    </Load>
  );
}

const columnsOf = (names: ReadonlyMap<string, string>) => [
  {
    title: 'Service',
    show: (one: ServiceUsage) => (
      <>
        <ServiceName usage={one} />
        <div className={ui.muted}>
          {[
            one.forked_from === undefined
              ? ''
              : `fork of ${names.get(one.forked_from) ?? one.forked_from}`,
            one.key_name === undefined ? '' : `made by the key ${one.key_name}`,
          ]
            .filter(Boolean)
            .join(', ')}
        </div>
      </>
    ),
  },
  { title: 'Memory', show: ({ memory_mb: mb }: ServiceUsage) => <Size mb={mb} /> },
  { title: 'Own disk', show: ({ own_mb: mb }: ServiceUsage) => <Size mb={mb} /> },
  {
    title: 'Shared disk',
    show: ({ shared_mb: mb }: ServiceUsage) => <Size mb={mb} />,
  },
  { title: 'Backups', show: ({ backups_mb: mb }: ServiceUsage) => <Size mb={mb} /> },
  { title: 'Why', show: ({ why }: ServiceUsage) => why },
];

/** Deleted services have no page, and a read replica set is on that of its service. */
function ServiceName({ usage }: { usage: ServiceUsage }) {
  const { name, deleted, service_id: id, read_replicas_of: parent } = usage;
  if (deleted !== undefined) return <strong className={ui.strong}>{name}</strong>;
  return (
    <Link to="/services/$id" params={{ id: parent ?? id }} className={ui.link}>
      {name}
    </Link>
  );
}

/** The size of the machine of a region, and for operators the sizes of its services together. */
function Machine({ region: { code, capacity, committed } }: { region: Region }) {
  if (capacity === undefined) return null;
  const { cpu_millis: cpu, memory_bytes: memory } = capacity;
  const rows = [
    { label: 'CPU', has: cores(cpu), of: committed && cores(committed.cpu_millis) },
    {
      label: 'Memory',
      has: `${Math.round(memory / 1024 ** 3)} GB`,
      of: committed && `${committed.memory_gbs} GB`,
    },
  ];
  return (
    <Card title={`Machine of ${code}`} hint="a larger size is refused">
      <div className={classes.meters}>
        {rows.map(({ label, has, of }) => (
          <div key={label} className={`${classes.meterHead} num`}>
            <span>{label}</span>
            <span>{of === undefined ? has : `${of} in the sizes of all services, of ${has}`}</span>
          </div>
        ))}
        {committed?.over !== undefined && (
          <p className={classes.hint}>
            The sizes of the services are more than there is: {committed.over}. They work until they
            use it at the same time; then each has its part of the CPU.
          </p>
        )}
      </div>
    </Card>
  );
}
