import { Switch, TextInput } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { BellRing } from 'lucide-react';
import { useState } from 'react';
import {
  alertRulesQuery,
  destinationCalls,
  destinationsQuery,
  incidentsQuery,
  setAlertRule,
  type AlertRule,
  type Destination,
  type Incident,
} from '../api-alerts.ts';
import { Confirm } from '../components/Confirm.tsx';
import { Rows } from '../components/Rows.tsx';
import {
  ActionButton,
  Ago,
  Card,
  Denied,
  Empty,
  Load,
  Notice,
  PageHead,
  Pill,
} from '../components/ui.tsx';
import { useCall } from '../components/use-call.tsx';
import { duration } from '../format.ts';
import { useMe } from '../session.ts';
import { whyReadOnly } from '../status.ts';
import { NewDestination, TYPE_NAMES } from './NewDestination.tsx';
import ui from './project.module.css';

export function Alerts() {
  const me = useMe();
  const { id: project } = me.project;
  const incidents = useQuery({ ...incidentsQuery(project), refetchInterval: 5000 });
  const destinations = useQuery({ ...destinationsQuery(project), refetchInterval: 5000 });
  const rules = useQuery(alertRulesQuery(project));
  const why = whyReadOnly(me);
  return (
    <>
      <PageHead
        title="Alerts"
        about={
          'An incident opens when the condition of a rule holds. Each destination gets one ' +
          'message then, and one when it is resolved.'
        }
      />
      <div className={ui.stack}>
        <Card title="Incidents" hint="open, and of the last 90 days">
          <Load query={incidents}>{(found) => <Incidents incidents={found} />}</Load>
        </Card>
        {why === null ? <NewDestination /> : <Denied what="change alerts" why={why} />}
        <Load query={destinations}>
          {(found) => found.map((one) => <One key={one.id} destination={one} />)}
        </Load>
        <Card title="Rules" hint="as they are set in this project">
          <Load query={rules}>
            {(found) => (
              <div className={ui.edgeless}>
                <Rows
                  rows={found}
                  idOf={({ rule }) => rule}
                  columns={[
                    { title: 'Rule', show: (rule) => <About rule={rule} /> },
                    { title: null, show: (rule) => <Setting rule={rule} why={why} /> },
                  ]}
                />
              </div>
            )}
          </Load>
        </Card>
      </div>
    </>
  );
}

function Incidents({ incidents }: { incidents: readonly Incident[] }) {
  if (incidents.length === 0)
    return (
      <Empty icon={BellRing} title="No incidents">
        Nothing has been wrong for as long as the rules require.
      </Empty>
    );
  return (
    <div className={ui.edgeless}>
      <Rows
        rows={incidents}
        idOf={({ id }) => id}
        columns={[
          {
            title: 'State',
            show: ({ status, severity }) =>
              status === 'resolved' ? (
                <Pill tone="good">resolved</Pill>
              ) : (
                <Pill tone={severity === 'critical' ? 'bad' : 'warn'}>{severity}</Pill>
              ),
          },
          { title: 'About', show: (incident) => <Subject incident={incident} /> },
          {
            title: 'Rule',
            show: ({ rule, message }) => (
              <>
                {rule}
                <div className={ui.muted}>{message}</div>
              </>
            ),
          },
          { title: 'Opened', show: ({ opened }) => <Ago iso={opened} /> },
          {
            title: 'Resolved',
            show: ({ resolved }) => (typeof resolved === 'string' ? <Ago iso={resolved} /> : ''),
          },
        ]}
      />
    </div>
  );
}

function Subject({ incident: { service_id: id, about } }: { incident: Incident }) {
  if (id === undefined) return <>{about}</>;
  return (
    <Link to="/services/$id" params={{ id }}>
      {about}
    </Link>
  );
}

function One({ destination }: { destination: Destination }) {
  const me = useMe();
  const { id, name, type, config, quiet_hours: quiet, warning } = destination;
  const calls = destinationCalls(me.project.id, id);
  const [tested, setTested] = useState<Awaited<ReturnType<typeof calls.test>> | null>(null);
  const test = useCall(calls.test, { onDone: setTested });
  const remove = useCall(calls.delete);
  const why = whyReadOnly(me);
  const target = config.to?.join(', ') ?? config.url ?? '';
  return (
    <Card title={name} hint={`${TYPE_NAMES[type]}: ${target}`}>
      <div className={ui.stack}>
        <p className={ui.muted}>
          {quiet === null
            ? 'No quiet hours.'
            : `Quiet from ${quiet.from} to ${quiet.to}, ${quiet.time_zone}` +
              (quiet.critical_passes ? '; critical messages pass.' : '.')}{' '}
          {typeof destination.last_success === 'string' && (
            <>
              Last accepted <Ago iso={destination.last_success} />.
            </>
          )}
        </p>
        <div className={ui.row} style={{ gap: 8 }}>
          <ActionButton
            variant="default"
            size="xs"
            why={why}
            loading={test.pending}
            onClick={() => test.run()}
          >
            Send a test
          </ActionButton>
          <Confirm
            label="Delete"
            title={`Delete ${name}`}
            why={why}
            pending={remove.pending}
            onConfirm={() => remove.run()}
          >
            Nothing more is sent to {target}; messages that wait are dropped.
          </Confirm>
        </div>
        {tested?.delivered === true && (
          <Notice tone="good">Accepted in {duration(tested.elapsed_ms)}</Notice>
        )}
        {tested?.delivered === false && (
          <Notice tone="bad">{tested.error ?? 'The message was not accepted'}</Notice>
        )}
        {tested === null && warning !== undefined && <Notice tone="warn">{warning}</Notice>}
      </div>
    </Card>
  );
}

const About = ({ rule: { rule, about, severity } }: { rule: AlertRule }) => (
  <>
    {rule} <span className={ui.muted}>({severity})</span>
    <div className={ui.muted}>{about}</div>
  </>
);

/** A rule's figures, which are saved together. */
function Setting({ rule: saved, why }: { rule: AlertRule; why: string | null }) {
  const { rule, unit } = saved;
  const me = useMe();
  const [threshold, setThreshold] = useState(String(saved.threshold ?? ''));
  const [minutes, setMinutes] = useState(String(saved.for_minutes));
  const set = useCall((change: Omit<Parameters<typeof setAlertRule>[1], 'rule'>) =>
    setAlertRule(me.project.id, { rule, ...change }),
  );
  const isWhole = /^\d{1,5}$/.test(minutes) && (unit === null || /^\d{1,5}$/.test(threshold));
  return (
    <div className={ui.row} style={{ gap: 8, alignItems: 'end', width: 'min(340px, 50vw)' }}>
      <Switch
        aria-label={`${rule} is on`}
        checked={saved.enabled}
        disabled={why !== null || set.pending}
        onChange={(event) => set.run({ enabled: event.currentTarget.checked })}
      />
      {unit !== null && (
        <TextInput
          size="xs"
          label={unit}
          aria-label={`${unit} of ${rule}`}
          value={threshold}
          onChange={(event) => setThreshold(event.currentTarget.value)}
          style={{ width: 84, textAlign: 'left' }}
        />
      )}
      <TextInput
        size="xs"
        label="for minutes"
        aria-label={`minutes of ${rule}`}
        value={minutes}
        onChange={(event) => setMinutes(event.currentTarget.value)}
        style={{ width: 84, textAlign: 'left' }}
      />
      <ActionButton
        variant="default"
        size="xs"
        why={why ?? (isWhole ? null : 'type whole numbers first')}
        loading={set.pending}
        onClick={() =>
          set.run({
            for_minutes: Number(minutes),
            ...(unit === null ? {} : { threshold: Number(threshold) }),
          })
        }
      >
        Save
      </ActionButton>
    </div>
  );
}
