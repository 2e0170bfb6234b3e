/** The points in time that the backups of each place reach, and how long they are kept. */
import { RETENTION_DAYS } from '@howdah/contract/values';
import { NumberInput } from '@mantine/core';
import { useState } from 'react';
import { serviceCalls, type Backups, type Service } from '../../api.ts';
import { ConfirmName } from '../../components/ConfirmName.tsx';
import { Form } from '../../components/Form.tsx';
import { Card, Facts } from '../../components/ui.tsx';
import { useCall } from '../../components/use-call.tsx';
import { days, fullTime } from '../../format.ts';
import { useMe } from '../../session.ts';
import { protectionOfService, whyNot } from '../../status.ts';
import classes from './service.module.css';

type Shown = { service: Service; backups: Backups };

export function PointsInTime({ service, backups }: Shown) {
  const { window, off_machine: repositories } = backups;
  return (
    <Card title="Points in time">
      <div className={classes.stack} style={{ gap: 14 }}>
        <Facts
          rows={[
            ['On its machine', reach(window, window.days)],
            ...repositories.map((one) => [one.repository, reach(one, one.retention_days)] as const),
          ]}
        />
        {repositories.length > 0 && <SetRetention service={service} backups={backups} />}
      </div>
    </Card>
  );
}

/** A place from and up to where a service can be restored, and for how long it keeps backups. */
function reach(
  { earliest, latest }: { earliest: string | null; latest: string | null },
  kept: number,
): string {
  const span =
    earliest === null || latest === null
      ? 'none yet'
      : `${fullTime(earliest)} to ${fullTime(latest)}`;
  return `${span} · kept for ${days(kept)}`;
}

/** Sets the retention: at once, or by the name of a service that is PROD or has a PROD set. */
function SetRetention({ service, backups: { own_retention_days: own } }: Shown) {
  const me = useMe();
  const { name } = service;
  const [wanted, setWanted] = useState(own);
  const call = () => serviceCalls(me.project.id, service.service_id).setBackupRetention(wanted);
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
  if (protectionOfService(service) !== 'PROD')
    return (
      <Form call={set} why={why} onSubmit={() => set.run()} submit="Set retention">
        {input}
      </Form>
    );
  return (
    <>
      {input}
      <ConfirmName
        label="Set retention…"
        title={`Set the backup retention of ${name}`}
        submit="Set the retention"
        name={name}
        why={why}
        call={call}
      >
        Backups that are older are removed within a day.
      </ConfirmName>
    </>
  );
}

/** Why a retention cannot be sent; null: it can. */
function whyNoRetention(kept: number | null): string | null {
  const { min, max } = RETENTION_DAYS;
  return kept === null || (Number.isInteger(kept) && kept >= min && kept <= max)
    ? null
    : `a retention is ${min} to ${max} days`;
}
