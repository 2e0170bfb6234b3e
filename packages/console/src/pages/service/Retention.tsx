/** The points in time that the backups of each place reach, and how long they are kept. */
import { RETENTION_DAYS } from '@howdah/contract/values';
import { NumberInput } from '@mantine/core';
import { useState } from 'react';
import { serviceCalls, type Backups, type Service } from '../../api.ts';
import { Form } from '../../components/Form.tsx';
import { Card } from '../../components/ui.tsx';
import { useCall } from '../../components/use-call.tsx';
import { days, fullTime } from '../../format.ts';
import { useIsOnKubernetes } from '../../live.ts';
import { useMe } from '../../session.ts';
import { whyNot } from '../../status.ts';
import classes from './service.module.css';

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

/** From and up to when a service can be restored from a place, which keeps backups for some days. */
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
