import { Modal, NativeSelect, PasswordInput, SegmentedControl, TextInput } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { notifications } from '@mantine/notifications';
import { PASSWORD_CHARACTERS } from '@howdah/contract/types';
import { useNavigate } from '@tanstack/react-router';
import { useState, type ReactNode } from 'react';
import { serviceCalls, setKnownPassword, type Service } from '../../api.ts';
import { Form, NameInput } from '../../components/Form.tsx';
import { ActionButton, Card, ErrorNotice } from '../../components/ui.tsx';
import { useCall } from '../../components/use-call.tsx';
import { cores } from '../../format.ts';
import { useRegions, useThisService } from '../../live.ts';
import { useMe } from '../../session.ts';
import { whyNot } from '../../status.ts';
import classes from './service.module.css';

export function Settings() {
  const service = useThisService();
  return (
    <div className={classes.stack}>
      <div className={classes.two}>
        <Rename key={service.name} service={service} />
        <Environment service={service} />
        <Resize key={service.resources[0]?.spec.cpu_millis} service={service} />
        <Password service={service} />
      </div>
      <Delete service={service} />
    </div>
  );
}

const useCalls = (service: Service) => serviceCalls(useMe().project.id, service.service_id);
const said = (message: string) => () => notifications.show({ message, color: 'teal' });

/** One setting: what it means, and the form or the switch for it. */
function Setting({ title, about, children }: { title: string; about: string; children: ReactNode }) {
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
  const rename = useCall(useCalls(service).rename, { quiet: true, onDone: said('Renamed') });
  const why =
    whyNot('rename', service, me) ??
    (name.trim() === '' ? 'a name has 1 to 128 characters' : name === service.name ? 'this is its name' : null);
  return (
    <Setting title="Name" about="For people. Programs go by the id, which stays.">
      <Form call={rename} why={why} onSubmit={() => rename.run(name)} submit="Rename" button={QUIET} inline>
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
    <Setting title="Environment" about="Only keys with the role admin may delete a PROD service.">
      <SegmentedControl<'DEV' | 'PROD'>
        aria-label="Environment tag"
        value={service.metadata.environment}
        disabled={why !== null || set.pending}
        onChange={(environment) => set.run(environment)}
        data={['DEV', 'PROD']}
        style={{ justifySelf: 'start' }}
      />
      {why !== null && <p className={classes.hint}>{why}</p>}
      <ErrorNotice error={set.error} />
    </Setting>
  );
}

function Resize({ service }: { service: Service }) {
  const me = useMe();
  const { data: regions } = useRegions();
  const now = service.resources[0]?.spec.cpu_millis;
  const [size, setSize] = useState<string | null>(now === undefined ? null : String(now));
  const resize = useCall(useCalls(service).resize, { quiet: true, onDone: said('The new size is on its way') });
  const sizes = regions?.find(({ code }) => code === service.region_code)?.sizes ?? [];
  const why =
    whyNot('resize', service, me) ?? (size === null || size === '' ? 'choose a size' : size === String(now) ? 'this is its size' : null);
  return (
    <Setting
      title="Size"
      about={
        service.status === 'PAUSED' ? 'Takes effect at the start.' : 'The server restarts: sessions end, and new ones wait for a moment.'
      }
    >
      <Form call={resize} why={why} onSubmit={() => resize.run(Number(size))} submit="Resize" button={QUIET} inline>
        <NativeSelect
          aria-label="New size"
          value={size ?? ''}
          onChange={(event) => setSize(event.currentTarget.value)}
          data={[
            ...(now === undefined ? [{ value: '', label: 'shared' }] : []),
            ...sizes.map(({ cpu_millis: cpu, memory_gbs: memory }) => ({ value: String(cpu), label: `${cores(cpu)}, ${memory} GB` })),
          ]}
          style={{ flex: '1 1 180px' }}
        />
      </Form>
    </Setting>
  );
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
      said('The new password is live')();
    },
  });
  const { min, max } = PASSWORD_CHARACTERS;
  const count = [...password].length;
  const why = whyNot('updatePassword', service, me) ?? (count < min || count > max ? `a password has ${min} to ${max} characters` : null);
  return (
    <Setting title="Password of tsdbadmin" about="Live at once; sessions that are open stay.">
      <Form call={update} why={why} onSubmit={() => update.run(password)} submit="Set" button={QUIET} inline>
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
  const [asking, { open, close }] = useDisclosure(false);
  return (
    <div className={classes.danger}>
      <Card title="Delete">
        <div className={`${classes.row} ${classes.between}`}>
          <p className={classes.hint}>
            Its processes end and its endpoint goes. For a while it can be restored under Deleted, with its data and password.
          </p>
          <ActionButton color="red.9" why={whyNot('delete', service, me)} onClick={open}>
            Delete…
          </ActionButton>
        </div>
        <Modal opened={asking} onClose={close} title={`Delete ${service.name}`} closeButtonProps={{ 'aria-label': 'Close' }}>
          <ConfirmDelete service={service} onDone={close} />
        </Modal>
      </Card>
    </div>
  );
}

/** What a dialog shows begins again each time it opens. */
function ConfirmDelete({ service, onDone }: { service: Service; onDone: () => void }) {
  const navigate = useNavigate();
  const [typed, setTyped] = useState('');
  const remove = useCall(useCalls(service).delete, {
    quiet: true,
    onDone: () => {
      onDone();
      said(`${service.name} is being deleted`)();
      void navigate({ to: '/services' });
    },
  });
  return (
    <Form
      call={remove}
      why={typed === service.name ? null : `type ${service.name} first`}
      onSubmit={() => remove.run()}
      submit="Delete the service"
      button={{ color: 'red.9' }}
    >
      <TextInput
        label={
          <>
            Type <code>{service.name}</code> to confirm
          </>
        }
        autoComplete="off"
        value={typed}
        onChange={(event) => setTyped(event.currentTarget.value)}
        data-autofocus
      />
    </Form>
  );
}
