/** The backups of a service in the repositories, and on demand. */
import { RETENTION_DAYS } from '@howdah/contract/values';
import { NumberInput } from '@mantine/core';
import { useState } from 'react';
import { serviceCalls, type Backups, type Service } from '../../api.ts';
import { ActionButton, Ago, Card, Facts, Notice } from '../../components/ui.tsx';
import { useCall } from '../../components/use-call.tsx';
import { bytes, duration, days, fullTime } from '../../format.ts';
import { useIsOnKubernetes, useWhyImpossible } from '../../live.ts';
import { useMe } from '../../session.ts';
import { whyNot } from '../../status.ts';
import classes from './service.module.css';
import { Form } from '../../components/Form.tsx';

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

// The points in time that the backups of each place reach, and how long they are kept.

type Shown = { service: Service; backups: Backups };

export function PointsInTime({ service, backups }: Shown) {
  const { window, off_machine: repositories } = backups;
  const place = useIsOnKubernetes(service) ? 'In its region' : 'On its machine';
  return (
    <Card title="Points in time">
      <div className={classes.stack} style={{ gap: 14 }}>
        <ul className={classes.plain}>
          <Reach place={place} reached={window} kept={window.days} />
          {repositories.map((one) => (
            <Reach
              key={one.repository}
              place={one.repository}
              reached={one}
              kept={one.retention_days}
            />
          ))}
        </ul>
        {repositories.length > 0 && <SetRetention service={service} backups={backups} />}
      </div>
    </Card>
  );
}

type Window = { earliest: string | null; latest: string | null };

/**
 * From and up to when a service can be restored from a place, which keeps backups for some days.
 */
function Reach({ place, reached, kept }: { place: string; reached: Window; kept: number }) {
  const { earliest, latest } = reached;
  return (
    <li className={`${classes.row} ${classes.between}`}>
      <span style={{ fontSize: 14 }}>{place}</span>
      <span className={`${classes.hint} num`}>
        {earliest === null || latest === null
          ? 'none yet'
          : `${fullTime(earliest)} to ${fullTime(latest)}`}
        {` · kept for ${days(kept)}`}
      </span>
    </li>
  );
}

/** Sets the retention. */
function SetRetention({ service, backups: { own_retention_days: own } }: Shown) {
  const me = useMe();
  const [wanted, setWanted] = useState(own);
  const call = () => serviceCalls(me.project.id, service).setBackupRetention(wanted);
  const set = useCall(call, { quiet: true });
  const why =
    whyNot('setBackupRetention', service, me) ??
    whyNoRetention(wanted) ??
    (own === wanted ? 'it is unchanged' : null);
  const input = (
    <NumberInput
      label="Days that repositories keep its backups"
      placeholder="as each repository says"
      min={RETENTION_DAYS.min}
      max={RETENTION_DAYS.max}
      allowDecimal={false}
      value={wanted ?? ''}
      onChange={(value) => setWanted(value === '' ? null : Number(value))}
      maw={300}
    />
  );
  return (
    <Form call={set} why={why} onSubmit={() => set.run()} submit="Set retention">
      {input}
      <p className={classes.hint}>Backups that are older are removed within a day.</p>
    </Form>
  );
}

/** Why a retention cannot be sent; null: it can. */
function whyNoRetention(kept: number | null): string | null {
  const { min, max } = RETENTION_DAYS;
  return kept === null || (Number.isInteger(kept) && kept >= min && kept <= max)
    ? null
    : `a retention is ${min} to ${max} days`;
}
