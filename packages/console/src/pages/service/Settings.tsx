import { Checkbox, NativeSelect, PasswordInput, SegmentedControl } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import {
  ADMIN_ROLE,
  ENVIRONMENTS,
  NAME_MAX_CHARACTERS,
  PASSWORD_CHARACTERS,
  type Environment as EnvironmentTag,
} from '@howdah/contract/types';
import { ENDS } from '@howdah/contract/permissions';
import { useNavigate } from '@tanstack/react-router';
import { useState, type ReactNode } from 'react';
import { serviceCalls, setKnownPassword, type Service } from '../../api.ts';
import { ConfirmName } from '../../components/ConfirmName.tsx';
import { Form, NameInput } from '../../components/Form.tsx';
import { ServiceLifetimeInput } from '../../components/Lifetime.tsx';
import { SleepInput } from '../../components/Sleep.tsx';
import { StorageInput, whyNoStorage } from '../../components/Storage.tsx';
import { Card, ErrorNotice, ActionButton } from '../../components/ui.tsx';
import { useCall } from '../../components/use-call.tsx';
import { bytes, cores, fullTime } from '../../format.ts';
import {
  useFindRegion,
  useIsCpuBound,
  useIsOnKubernetes,
  useThisService,
  useNewerVersions,
  useWhyImpossible,
} from '../../live.ts';
import { useMe } from '../../session.ts';
import { NO_ROOM, whyNot } from '../../status.ts';
import { Reset } from './Reset.tsx';
import classes from './service.module.css';

export function Settings() {
  const service = useThisService();
  return (
    <div className={classes.stack}>
      <div className={classes.two}>
        <Rename key={service.name} service={service} />
        <Environment service={service} />
        <Resize key={JSON.stringify(specOf(service))} service={service} />
        <Password service={service} />
        <Lifetime key={service.expires_at ?? ''} service={service} />
        <Sleep key={`sleep ${service.auto_suspend_seconds ?? ''}`} service={service} />
      </div>
      <Reset service={service} />
      <Upgrade service={service} />
      <Delete service={service} />
    </div>
  );
}

const useCalls = (service: Service) => serviceCalls(useMe().project.id, service);
const notify = (message: string) => () => notifications.show({ message, color: 'teal' });

/** A setting: its meaning, and the form or switch that changes it. */
function Setting({
  title,
  about,
  children,
}: {
  title: string;
  about: string;
  children: ReactNode;
}) {
  return (
    <Card title={title}>
      <div className={classes.stack} style={{ gap: 12 }}>
        <p className={classes.hint}>{about}</p>
        {children}
      </div>
    </Card>
  );
}

const QUIET = { variant: 'default' } as const;

function Rename({ service }: { service: Service }) {
  const me = useMe();
  const [name, setName] = useState(service.name);
  const rename = useCall(useCalls(service).rename, { quiet: true, onDone: notify('Renamed') });
  const why =
    whyNot('rename', service, me) ??
    (name.trim() === ''
      ? `a name has 1 to ${NAME_MAX_CHARACTERS} characters`
      : name === service.name
        ? 'the name is unchanged'
        : null);
  return (
    <Setting title="Name" about="Programs use the id, which stays the same.">
      <Form
        call={rename}
        why={why}
        onSubmit={() => rename.run(name)}
        submit="Rename"
        button={QUIET}
        inline
      >
        <NameInput aria-label="New name" value={name} onChange={setName} />
      </Form>
    </Setting>
  );
}

function Environment({ service }: { service: Service }) {
  const me = useMe();
  const set = useCall(useCalls(service).setEnvironment, { quiet: true });
  const why = whyNot('setEnvironment', service, me);
  return (
    <Setting
      title="Environment"
      about={`Only admin keys may ${ENDS} a PROD service, and must type its name.`}
    >
      <SegmentedControl<EnvironmentTag>
        aria-label="Environment tag"
        value={service.metadata.environment}
        disabled={why !== null || set.pending}
        onChange={(environment) => set.run(environment)}
        data={[...ENVIRONMENTS]}
        style={{ justifySelf: 'start' }}
      />
      {why !== null && <p className={classes.hint}>{why}</p>}
      <ErrorNotice error={set.error} />
    </Setting>
  );
}

const specOf = ({ resources }: Service) => resources[0]?.spec;

function Resize({ service }: { service: Service }) {
  const me = useMe();
  const findRegion = useFindRegion();
  const { cpu_millis: now, storage_gb: quota = 0 } = specOf(service) ?? {};
  const isBound = useIsCpuBound(service);
  const isOnKubernetes = useIsOnKubernetes(service);
  const [size, setSize] = useState(now === undefined ? '' : String(now));
  const [storage, setStorage] = useState(quota);
  // The bound of the region is known when its description has come.
  const [bound = isBound, setBound] = useState<boolean>();
  const resize = useCall(useCalls(service).resize, {
    quiet: true,
    onDone: notify('The new size is being applied'),
  });
  const sizes = findRegion(service.region_code)?.sizes ?? [];
  const request = {
    ...(size === '' || size === String(now) ? {} : { cpu_millis: size }),
    ...(storage === quota ? {} : { storage_gb: storage }),
    ...(bound === isBound ? {} : { cpu_bound: bound }),
  };
  // A pod gets another limit by being replaced.
  const restarts = 'cpu_millis' in request || ('cpu_bound' in request && isOnKubernetes);
  const why =
    whyNot('resize', service, me) ??
    whyNoStorage(storage) ??
    (Object.keys(request).length === 0 ? 'the size is unchanged' : null);
  return (
    <Setting
      title="Size"
      about={aboutResize(service, restarts || Object.keys(request).length === 0)}
    >
      <Form
        call={resize}
        why={why}
        onSubmit={() => resize.run(request)}
        submit="Resize"
        button={QUIET}
        inline
      >
        <NativeSelect
          aria-label="New size"
          value={size}
          onChange={(event) => setSize(event.currentTarget.value)}
          data={[
            ...(now === undefined ? [{ value: '', label: 'shared' }] : []),
            ...sizes.map(({ cpu_millis: cpu, memory_gbs: memory, has_room: hasRoom }) => ({
              value: String(cpu),
              label: `${cores(cpu)}, ${memory} GB${hasRoom ? '' : `: ${NO_ROOM}`}`,
              // The service keeps the size that it has.
              disabled: !hasRoom && cpu !== now,
            })),
          ]}
          style={{ flex: '1 1 150px' }}
        />
        <StorageInput
          aria-label="New storage in GB"
          w={130}
          value={storage}
          onChange={setStorage}
        />
        <Checkbox
          label="No more CPU than this"
          style={{ flex: '1 1 150px', alignSelf: 'center' }}
          checked={bound}
          disabled={now === undefined && size === ''}
          onChange={(event) => setBound(event.currentTarget.checked)}
        />
      </Form>
      <p className={`${classes.hint} num`}>{usageOf(service)}</p>
    </Setting>
  );
}

function aboutResize({ status }: Service, restarts: boolean): string {
  if (status === 'PAUSED') return 'The new size applies from the next start.';
  return !restarts
    ? 'This changes without a restart.'
    : 'The server restarts: sessions end, and new ones wait for about a second.';
}

/** The storage that a service uses. */
function usageOf(service: Service): string {
  const { storage_mb: usedMb } = service.metrics;
  const quota = bytes((specOf(service)?.storage_gb ?? 0) * 1e9);
  return usedMb === null
    ? `Storage: ${quota}. The use is known while the service runs.`
    : `Storage: ${bytes(usedMb * 1e6)} of ${quota} in use.`;
}

function Password({ service }: { service: Service }) {
  const me = useMe();
  const [password, setPassword] = useState('');
  const calls = useCalls(service);
  const update = useCall(calls.updatePassword, {
    quiet: true,
    onDone: () => {
      setKnownPassword(service.service_id, password);
      setPassword('');
      notify('The new password is active')();
    },
  });
  const { min, max } = PASSWORD_CHARACTERS;
  const count = [...password].length;
  const why =
    whyNot('updatePassword', service, me) ??
    (count < min || count > max ? `a password has ${min} to ${max} characters` : null);
  return (
    <Setting
      title={`Password of ${ADMIN_ROLE}`}
      about="Active at once. Open sessions of the role end."
    >
      <Form
        call={update}
        why={why}
        onSubmit={() => update.run(password)}
        submit="Set"
        button={QUIET}
        inline
      >
        <PasswordInput
          aria-label="New password"
          autoComplete="new-password"
          value={password}
          onChange={(event) => setPassword(event.currentTarget.value)}
          visibilityToggleButtonProps={{ 'aria-label': 'Show the password' }}
          style={{ flex: '1 1 180px' }}
        />
      </Form>
    </Setting>
  );
}

function Lifetime({ service }: { service: Service }) {
  const me = useMe();
  const { expires_at: end, purge_on_expiry: purges = false, metadata } = service;
  const [lifetime, setLifetime] = useState({ seconds: '', purges });
  const set = useCall(useCalls(service).setExpiry, {
    quiet: true,
    onDone: notify('The lifetime is changed'),
  });
  const isProd = metadata.environment === 'PROD';
  const why =
    whyNot('setExpiry', service, me) ?? (isProd ? 'a PROD service is not deleted by itself' : null);
  return (
    <Setting
      title="Lifetime"
      about={
        end === undefined
          ? 'It is not deleted by itself.'
          : `It is deleted at ${fullTime(end)}${purges ? ', and cannot be restored then' : ''}.`
      }
    >
      <Form
        call={set}
        why={why ?? (lifetime.seconds === '' ? 'choose when it is deleted' : null)}
        onSubmit={() =>
          set.run({ ttl_seconds: Number(lifetime.seconds), purge_on_expiry: lifetime.purges })
        }
        submit="Set"
        button={QUIET}
      >
        <ServiceLifetimeInput value={lifetime} otherwise="As it is" onChange={setLifetime} />
      </Form>
      {end !== undefined && (
        <ActionButton why={why} variant="default" onClick={() => set.run({ expires_at: null })}>
          Keep it
        </ActionButton>
      )}
    </Setting>
  );
}

function Sleep({ service }: { service: Service }) {
  const me = useMe();
  const missing = useWhyImpossible(service)('setAutoSuspend');
  const { auto_suspend_seconds: before } = service;
  const [seconds, setSeconds] = useState(before === undefined ? '' : String(before));
  const set = useCall(useCalls(service).setAutoSuspend, {
    onDone: notify('When it falls asleep is changed'),
  });
  return (
    <Setting
      title="Sleep"
      about={
        'While nobody uses it, its server can stop: it takes no memory then, and the next client ' +
        'has it started in a moment. The first time, and for never, its sessions end.'
      }
    >
      <Form
        call={set}
        why={whyNot('setAutoSuspend', service, me) ?? missing}
        onSubmit={() => set.run({ auto_suspend_seconds: seconds === '' ? null : Number(seconds) })}
        submit="Set"
        button={QUIET}
      >
        <SleepInput seconds={seconds} onChange={setSeconds} />
      </Form>
    </Setting>
  );
}

function Delete({ service }: { service: Service }) {
  const me = useMe();
  const navigate = useNavigate();
  const calls = useCalls(service);
  return (
    <div className={classes.danger}>
      <Card title="Delete">
        <div className={`${classes.row} ${classes.between}`}>
          <p className={classes.hint}>
            Its processes end and its endpoint closes. It can be restored for a while, with its data
            and password: see Deleted. That time ends earlier if the disk fills.
          </p>
          <ConfirmName
            label="Delete…"
            title={`Delete ${service.name}`}
            submit="Delete the service"
            name={service.name}
            why={whyNot('delete', service, me)}
            button={{ color: 'red.9', variant: 'filled' }}
            call={() => calls.delete(service.name)}
            onDone={() => {
              notify(`${service.name} is being deleted`)();
              void navigate({ to: '/services' });
            }}
          >
            All its sessions end, and those of its read replica sets.
          </ConfirmName>
        </div>
      </Card>
    </div>
  );
}

// The major version of PostgreSQL of a service: upgrade, trial and undo.

/** Shown where the region has a newer version, or an upgrade can be undone. */
export function Upgrade({ service }: { service: Service }) {
  const newer = useNewerVersions(service);
  if (newer.length === 0 && service.upgraded === undefined) return null;
  return (
    <Card title="PostgreSQL version">
      <div className={classes.stack} style={{ gap: 12 }}>
        {newer.length > 0 && <ToNewer service={service} newer={newer} />}
        {service.upgraded !== undefined && <Undo service={service} upgraded={service.upgraded} />}
      </div>
    </Card>
  );
}

function ToNewer({
  service,
  newer,
}: {
  service: Service;
  newer: ReturnType<typeof useNewerVersions>;
}) {
  const me = useMe();
  const [chosen, setChosen] = useState('');
  const version = chosen === '' ? (newer[0]?.pg_version ?? '') : chosen;
  const calls = serviceCalls(me.project.id, service);
  const attempt = useCall(calls.upgrade, {
    onDone: notify('A copy is being upgraded: see Operations'),
  });
  const why = whyNot('upgrade', service, me);
  return (
    <>
      <p className={classes.hint}>
        Nobody can connect while the data is copied into the new version, which takes as long as a
        dump and a restore. A trial does that with a copy, and shows in Operations how long it took.
      </p>
      <div className={classes.row}>
        <NativeSelect
          aria-label="Newer version"
          value={version}
          onChange={(event) => setChosen(event.currentTarget.value)}
          data={newer.map(({ pg_version: major, version: full }) => ({
            value: major,
            label: full ?? major,
          }))}
        />
        <ActionButton
          variant="default"
          why={why}
          loading={attempt.pending}
          onClick={() => attempt.run({ pg_version: version, try: true })}
        >
          Try
        </ActionButton>
        <ConfirmName
          label="Upgrade…"
          title={`Upgrade ${service.name} to PostgreSQL ${version}`}
          submit="Upgrade the service"
          name={service.name}
          why={why}
          call={() => calls.upgrade({ pg_version: version, confirm: service.name })}
          onDone={notify(`${service.name} is being upgraded`)}
        >
          All its sessions end, and nobody can connect until the data is copied. The former data is
          kept for a while, and can be brought back. Points in time before the upgrade cannot be
          reached after it.
        </ConfirmName>
      </div>
    </>
  );
}

function Undo({
  service,
  upgraded: { from, at },
}: {
  service: Service;
  upgraded: NonNullable<Service['upgraded']>;
}) {
  const me = useMe();
  const calls = serviceCalls(me.project.id, service);
  return (
    <div className={`${classes.row} ${classes.between}`}>
      <p className={classes.hint}>
        Upgraded from PostgreSQL {from}, {fullTime(at)}. The former data is kept for a while.
      </p>
      <ConfirmName
        label="Undo…"
        title={`Undo the upgrade of ${service.name}`}
        submit="Undo the upgrade"
        name={service.name}
        why={whyNot('undoUpgrade', service, me)}
        call={() => calls.upgrade({ undo: true, confirm: service.name })}
        onDone={notify(`The upgrade of ${service.name} is being undone`)}
      >
        The data from before the upgrade comes back. What was written since then is lost. All
        sessions end.
      </ConfirmName>
    </div>
  );
}
