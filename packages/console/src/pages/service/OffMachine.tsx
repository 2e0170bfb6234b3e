/** The backups of a service in the repositories, and on demand. */
import { serviceCalls, type Backups, type Service } from '../../api.ts';
import { ActionButton, Ago, Card, Facts, Notice } from '../../components/ui.tsx';
import { useCall } from '../../components/use-call.tsx';
import { bytes, duration } from '../../format.ts';
import { useIsOnKubernetes, useWhyImpossible } from '../../live.ts';
import { useMe } from '../../session.ts';
import { whyNot } from '../../status.ts';
import classes from './service.module.css';

export function OffMachine({
  service,
  backups: { off_machine: all },
}: {
  service: Service;
  backups: Backups;
}) {
  if (useIsOnKubernetes(service)) return <InRegion service={service} />;
  if (all.length === 0)
    return (
      <Card title="Off the machine">
        <p className={classes.hint}>
          Snapshots and WAL are on the disk of the data only. The operator of this installation can
          add a repository, which keeps them somewhere else.
        </p>
      </Card>
    );
  return all.map((one) => <InRepository key={one.repository} service={service} one={one} />);
}

/** The archive of a region is among its points in time. */
function InRegion({ service }: { service: Service }) {
  return (
    <Card title="Backup on demand">
      <div className={classes.stack} style={{ gap: 14 }}>
        <p className={classes.hint}>
          A snapshot and a base backup, as far as the region takes them, beside those by schedule.
        </p>
        <div className={classes.row}>
          <BackUpNow service={service} />
        </div>
      </div>
    </Card>
  );
}

function BackUpNow({ service }: { service: Service }) {
  const me = useMe();
  const impossible = useWhyImpossible(service);
  const run = useCall(serviceCalls(me.project.id, service).runBackup);
  return (
    <ActionButton
      variant="default"
      why={whyNot('runBackup', service, me) ?? impossible('runBackup')}
      loading={run.pending}
      onClick={() => run.run()}
    >
      Back up now
    </ActionButton>
  );
}

function InRepository({ service, one }: { service: Service; one: Backups['off_machine'][number] }) {
  const me = useMe();
  const impossible = useWhyImpossible(service);
  const verify = useCall(serviceCalls(me.project.id, service).verifyInRepositories);
  const { repository, latest, backups, backlog_mb: backlogMb, problem } = one;
  const last = one.last_verification;
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
            ['Behind', latest === null ? 'unknown' : duration(Date.now() - Date.parse(latest))],
            ['WAL to send', backlogMb === 0 ? 'none' : bytes(backlogMb * 1e6)],
            ['Last backup', newest === undefined ? 'none yet' : <Ago iso={newest.taken} />],
            ['Backups', String(backups.length)],
            [
              'Space',
              bytes(backups.reduce((sum, { storage_mb: storage }) => sum + storage, 0) * 1e6),
            ],
            ...(last === undefined ? [] : measured(last)),
          ]}
        />
        {last?.problem !== undefined && (
          <Notice tone="bad">
            <p>{last.problem}</p>
          </Notice>
        )}
        <div className={classes.row}>
          <BackUpNow service={service} />
          <ActionButton
            variant="default"
            why={whyNot('verifyBackup', service, me) ?? impossible('runBackup')}
            loading={verify.pending}
            onClick={() => verify.run()}
          >
            Verify now
          </ActionButton>
        </div>
      </div>
    </Card>
  );
}

/** The figures of the last verification: the time that a restore takes, and what it would lose. */
const measured = ({
  at,
  recovery_seconds: seconds,
  recovery_seconds_per_gb: perGb,
  lost_seconds: lost,
}: NonNullable<Backups['off_machine'][number]['last_verification']>) =>
  [
    ['Verified', <Ago key="at" iso={at} />],
    [
      'Restored within',
      seconds === null ? 'never' : `${seconds.toFixed(1)} s (${perGb?.toFixed(1) ?? '?'} s/GB)`,
    ],
    ['Would have lost', lost === null ? 'unknown' : `${lost} s`],
  ] as const;
