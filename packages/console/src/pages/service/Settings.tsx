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
import { StorageInput, whyNoStorage } from '../../components/Storage.tsx';
import { Card, ErrorNotice } from '../../components/ui.tsx';
import { useCall } from '../../components/use-call.tsx';
import { bytes, cores } from '../../format.ts';
import { useFindRegion, useIsCpuBound, useIsOnKubernetes, useThisService } from '../../live.ts';
import { useMe } from '../../session.ts';
import { NO_ROOM, whyNot } from '../../status.ts';
import classes from './service.module.css';
import { Upgrade } from './Upgrade.tsx';

export function Settings() {
  const service = useThisService();
  return (
    <div className={classes.stack}>
      <div className={classes.two}>
        <Rename key={service.name} service={service} />
        <Environment service={service} />
        <Resize key={JSON.stringify(specOf(service))} service={service} />
        <Password service={service} />
      </div>
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
