import { RETENTION_DAYS } from '@howdah/contract/values';
import { useQuery } from '@tanstack/react-query';
import { projectQuery } from '../api-project.ts';
import { Load } from '../components/Load.tsx';
import { Ago, Card, PageHead } from '../components/ui.tsx';
import { cores, days } from '../format.ts';
import { useMe } from '../session.ts';
import classes from './service/service.module.css';

/** The counted resources and their format. */
const COUNTED = [
  { name: 'services', label: 'Services', show: String },
  { name: 'replica_sets', label: 'Read replica sets', show: String },
  { name: 'cpu_millis', label: 'CPU', show: cores },
  { name: 'memory_gbs', label: 'Memory', show: (gbs: number) => `${gbs} GB` },
] as const;

export function Usage() {
  const { project } = useMe();
  const query = useQuery({ ...projectQuery(project.id), refetchInterval: 5000 });
  return (
    <>
      <PageHead title="Usage" about="What this project uses, and its limits." />
      <Load query={query}>
        {({ name, created, used, limits }) => (
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
                        <div
                          style={{
                            width: `${limit === 0 ? 100 : Math.min(100, (used[counted] / limit) * 100)}%`,
                          }}
                        />
                      </div>
                    )}
                  </div>
                );
              })}
              <div className={`${classes.meterHead} num`}>
                <span>Longest backup retention</span>
                <span>{days(limits.backup_retention_days ?? RETENTION_DAYS.max)}</span>
              </div>
            </div>
          </Card>
        )}
      </Load>
    </>
  );
}
