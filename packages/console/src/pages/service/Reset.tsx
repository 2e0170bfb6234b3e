import { SegmentedControl, TextInput } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { Schemas } from '@howdah/client';
import { serviceCalls, type Service } from '../../api.ts';
import { ConfirmName } from '../../components/ConfirmName.tsx';
import { Card } from '../../components/ui.tsx';
import { useWhyImpossible } from '../../live.ts';
import { useMe } from '../../session.ts';
import { whyNot } from '../../status.ts';
import classes from './service.module.css';

type ResetTarget = NonNullable<Schemas['ResetService']['target']>;

const STATES: { value: ResetTarget; label: string }[] = [
  { value: 'NOW', label: 'Now' },
  { value: 'BEGINNING', label: 'Beginning of the fork' },
  { value: 'PITR', label: 'A point in time' },
];

/** Gives a fork the data of its parent again. Other services have no such card. */
export function Reset({ service }: { service: Service }) {
  const parent = service.forked_from;
  return parent === undefined || parent.is_standby ? null : (
    <ResetOf service={service} parent={parent.service_id} />
  );
}

function ResetOf({ service, parent }: { service: Service; parent: string }) {
  const me = useMe();
  const { name } = service;
  const [target, setTarget] = useState<ResetTarget>('NOW');
  const [moment, setMoment] = useState('');
  const impossible = useWhyImpossible(service);
  const isUnset = target === 'PITR' && Number.isNaN(Date.parse(moment));
  const why =
    whyNot('reset', service, me) ??
    impossible('reset') ??
    (isUnset ? 'type a time, like 2026-01-31T12:00:00Z' : null);
  return (
    <Card title="Reset">
      <div className={classes.stack} style={{ gap: 14 }}>
        <p className={classes.hint}>
          The data of its parent{' '}
          <Link to="/services/$id" params={{ id: parent }}>
            {parent}
          </Link>{' '}
          comes back. Id, endpoint, password, size and end stay.
        </p>
        <SegmentedControl<ResetTarget>
          aria-label="Which state of its parent"
          data={STATES}
          value={target}
          onChange={setTarget}
        />
        {target === 'PITR' && (
          <TextInput
            label="Time, with its offset"
            placeholder="2026-01-31T12:00:00Z"
            value={moment}
            onChange={(event) => setMoment(event.currentTarget.value)}
            maw={420}
          />
        )}
        <ConfirmName
          label="Reset…"
          title={`Reset ${name}`}
          submit="Reset the fork"
          name={name}
          why={why}
          call={() =>
            serviceCalls(me.project.id, service).reset({
              target,
              confirm: name,
              ...(target === 'PITR' ? { target_time: moment } : {}),
            })
          }
          onDone={() => notifications.show({ message: `${name} is being reset`, color: 'teal' })}
        >
          Everything that was written to the fork is lost, with the roles and databases that were
          made in it, its snapshots and its points in time. All its sessions end.
        </ConfirmName>
      </div>
    </Card>
  );
}
