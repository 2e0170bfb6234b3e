import { RETENTION_DAYS } from '@howdah/contract/values';
import { useQuery } from '@tanstack/react-query';
import type { Region } from '../api.ts';
import { projectQuery } from '../api-project.ts';
import { Load, Ago, Card, PageHead } from '../components/ui.tsx';
import { cores, days } from '../format.ts';
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
            </div>
          )}
        </Load>
      </div>
    </>
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
