import { Checkbox, Input, SegmentedControl, TextInput } from '@mantine/core';
import { denialOfKeys, ROLE_SUMMARIES } from '@howdah/contract/permissions';
import { ROLES, type Role } from '@howdah/contract/types';
import { useQuery } from '@tanstack/react-query';
import { KeyRound } from 'lucide-react';
import { useState } from 'react';
import { createKey, keysQuery, revokeKey, type Key } from '../api-project.ts';
import { Confirm } from '../components/Confirm.tsx';
import { Fields, Form, NameInput } from '../components/Form.tsx';
import { Load, Ago, Card, Denied, Empty, PageHead, Pill, Until } from '../components/ui.tsx';
import { Rows } from '../components/Rows.tsx';
import { expiryOf, LifetimeBound, LifetimeInput } from '../components/Lifetime.tsx';
import { SleepInput } from '../components/Sleep.tsx';
import { Secret } from '../components/Secret.tsx';
import { useCall } from '../components/use-call.tsx';
import { duration } from '../format.ts';
import { useMe } from '../session.ts';
import ui from './project.module.css';

export function Keys() {
  const me = useMe();
  const keys = useQuery({ ...keysQuery(me.project.id), refetchInterval: 10_000 });
  const why = denialOfKeys(me);
  return (
    <>
      <PageHead
        title="Keys"
        about={
          'A key gives access to the API with a role. Its secret is shown once. ' +
          'A revoked key is refused at once.'
        }
      />
      <div className={ui.stack}>
        {why === null ? <NewKey /> : <Denied what="create or revoke keys" why={why} />}
        <Load query={keys}>{(found) => <List keys={found} why={why} />}</Load>
      </div>
    </>
  );
}

function NewKey() {
  const { project } = useMe();
  const [name, setName] = useState('');
  const [role, setRole] = useState<Role>('developer');
  const [days, setDays] = useState('0');
  const [forkOnly, setForkOnly] = useState(false);
  const [dryRunOnly, setDryRunOnly] = useState(false);
  const [bounds, setBounds] = useState(NO_BOUNDS);
  const [secret, setSecret] = useState<string | null>(null);
  const create = useCall(
    () =>
      createKey(project.id, {
        name: name.trim(),
        role,
        ...expiryOf(days),
        ...(forkOnly ? { fork_only: true } : {}),
        ...(dryRunOnly ? { dry_run_only: true } : {}),
        ...boundsOf(bounds),
      }),
    {
      quiet: true,
      onDone: ({ public_key: publicKey, secret_key: secretKey = '' }) => {
        setSecret(`${publicKey}:${secretKey}`);
        setName('');
      },
    },
  );
  const notYet = name.trim() === '' ? 'type a name first' : null;
  return (
    <Card title="New key">
      <Form call={create} why={notYet} onSubmit={() => create.run()} submit="Create the key">
        <Fields>
          <NameInput label="Name" placeholder="ci" value={name} onChange={setName} />
          <LifetimeInput days={days} onChange={setDays} />
          <div>
            <Input.Label component="div">Role</Input.Label>
            <SegmentedControl<Role>
              aria-label="Role"
              fullWidth
              value={role}
              onChange={setRole}
              data={[...ROLES]}
            />
          </div>
        </Fields>
        <p className={ui.muted}>
          A key with the role {role} {ROLE_SUMMARIES[role]}.
        </p>
        <Checkbox
          checked={forkOnly}
          onChange={(event) => setForkOnly(event.currentTarget.checked)}
          label="Forks only: changes only forks that it created"
        />
        <Checkbox
          checked={dryRunOnly}
          onChange={(event) => setDryRunOnly(event.currentTarget.checked)}
          label="Dry runs only: the API reports what a change would do, and does nothing"
        />
        <BoundsInput value={bounds} onChange={setBounds} />
      </Form>
      <Secret title="The new key" label="key" value={secret} onClose={() => setSecret(null)} />
    </Card>
  );
}

/** The bounds of the services that a key makes, as they are typed; empty: none. */
const NO_BOUNDS = { lifetime: '', sleep: '', most: '' };

function BoundsInput({
  value,
  onChange,
}: {
  value: typeof NO_BOUNDS;
  onChange: (value: typeof NO_BOUNDS) => void;
}) {
  return (
    <Fields>
      <LifetimeBound
        seconds={value.lifetime}
        onChange={(lifetime) => onChange({ ...value, lifetime })}
      />
      <SleepInput
        label="Its DEV services fall asleep"
        otherwise="when they are made so"
        seconds={value.sleep}
        onChange={(sleep) => onChange({ ...value, sleep })}
      />
      <TextInput
        label="Services at a time"
        placeholder="any number"
        inputMode="numeric"
        value={value.most}
        onChange={(event) => onChange({ ...value, most: event.currentTarget.value })}
      />
    </Fields>
  );
}

/** A text that is no number is sent as 0, which the API refuses with what is allowed. */
const boundsOf = ({ lifetime, sleep, most }: typeof NO_BOUNDS) => ({
  ...(lifetime === '' ? {} : { max_service_ttl_seconds: Number(lifetime) }),
  ...(sleep === '' ? {} : { service_auto_suspend_seconds: Number(sleep) }),
  ...(most.trim() === '' ? {} : { max_services: Number.parseInt(most, 10) || 0 }),
});

/** When a key expires, or has expired. */
function Expiry({ iso }: { iso: string | null }) {
  if (iso === null) return 'never';
  return Date.parse(iso) > Date.now() ? <Until iso={iso} /> : <Ago iso={iso} />;
}

function List({ keys, why }: { keys: readonly Key[]; why: string | null }) {
  const { project, public_key: mine } = useMe();
  const revoke = useCall((publicKey: string) => revokeKey(project.id, publicKey));
  return (
    <Card flush>
      {keys.length === 0 ? (
        <Empty icon={KeyRound} title="No keys">
          Give each program and each person a key of their own, so that each can be revoked alone.
        </Empty>
      ) : (
        <Rows
          rows={keys}
          idOf={({ public_key: publicKey }) => publicKey}
          columns={[
            {
              title: 'Name',
              show: ({ name, public_key: publicKey }) => (
                <>
                  <strong className={ui.strong}>{name}</strong>
                  <div className={`mono ${ui.muted}`}>{publicKey}</div>
                </>
              ),
            },
            {
              title: 'Role',
              show: ({
                role,
                fork_only: forkOnly,
                dry_run_only: dryRunOnly,
                service_ttl_seconds: ttl,
                max_service_ttl_seconds: most,
                service_auto_suspend_seconds: sleep,
                max_services: count,
              }) => (
                <>
                  {role}
                  <div className={ui.muted}>
                    {[
                      forkOnly ? 'forks only' : '',
                      dryRunOnly ? 'dry runs only' : '',
                      ttl === undefined ? '' : `its services end after ${duration(ttl * 1000)}`,
                      most === undefined ? '' : `within ${duration(most * 1000)} at the latest`,
                      sleep === undefined
                        ? ''
                        : `its DEV services sleep after ${duration(sleep * 1000)}`,
                      count === undefined ? '' : `at most ${count} services`,
                    ]
                      .filter(Boolean)
                      .join(', ')}
                  </div>
                </>
              ),
            },
            {
              title: 'Last used',
              show: ({ last_used: at }) => (at === null ? 'never' : <Ago iso={at} />),
            },
            {
              title: 'Expires',
              show: ({ expires_at: at }) => <Expiry iso={at} />,
            },
            {
              title: null,
              show: ({ name, public_key: publicKey, revoked_at: revoked }) =>
                revoked !== null ? (
                  <Pill tone="idle">revoked</Pill>
                ) : (
                  <Confirm
                    label="Revoke"
                    title={`Revoke ${name}`}
                    why={why}
                    pending={revoke.pending}
                    onConfirm={() => revoke.run(publicKey)}
                  >
                    Every call with <code>{publicKey}</code> is refused from then on.
                    {publicKey === mine && ' This session uses it, and ends with it.'}
                  </Confirm>
                ),
            },
          ]}
        />
      )}
    </Card>
  );
}
