/** The backups of a service in the repositories. */
import type { Backups } from '../../api.ts';
import { Ago, Card, Facts, Notice } from '../../components/ui.tsx';
import { bytes, duration, fullTime } from '../../format.ts';
import classes from './service.module.css';

export function OffMachine({ backups: { off_machine: all } }: { backups: Backups }) {
  if (all.length === 0)
    return (
      <Card title="Off the machine">
        <p className={classes.hint}>
          Snapshots and WAL are on the disk of the data only. The operator of this installation can
          add a repository, which keeps them somewhere else.
        </p>
      </Card>
    );
  return all.map((one) => <InRepository key={one.repository} one={one} />);
}

function InRepository({ one }: { one: Backups['off_machine'][number] }) {
  const { repository, earliest, latest, backups, backlog_mb: backlogMb, problem } = one;
  const [newest] = backups;
  return (
    <Card title="Off the machine" hint={repository}>
      <div className={classes.stack} style={{ gap: 14 }}>
        {problem !== null && (
          <Notice tone="warn">
            <p>{problem}</p>
          </Notice>
        )}
        <Facts
          rows={[
            ['Restorable from', earliest === null ? 'none yet' : fullTime(earliest)],
            ['Restorable to', latest === null ? 'none yet' : fullTime(latest)],
            ['Behind', latest === null ? 'unknown' : duration(Date.now() - Date.parse(latest))],
            ['WAL to send', backlogMb === 0 ? 'none' : bytes(backlogMb * 1e6)],
            ['Last backup', newest === undefined ? 'none yet' : <Ago iso={newest.taken} />],
            ['Backups', String(backups.length)],
            [
              'Space',
              bytes(backups.reduce((sum, { storage_mb: storage }) => sum + storage, 0) * 1e6),
            ],
          ]}
        />
      </div>
    </Card>
  );
}
