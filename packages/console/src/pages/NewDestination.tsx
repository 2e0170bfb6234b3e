import {
  DESTINATION_TYPES,
  SMTP_ENCRYPTIONS,
  type DestinationType,
  type SmtpEncryption,
} from '@howdah/contract/values';
import { Checkbox, NativeSelect } from '@mantine/core';
import { useState } from 'react';
import { createDestination, type NewDestination as Request } from '../api-alerts.ts';
import { Fields, Form, NameInput, SecretField, TextField } from '../components/Form.tsx';
import { Secret } from '../components/Secret.tsx';
import { Card } from '../components/ui.tsx';
import { useCall } from '../components/use-call.tsx';
import { useMe } from '../session.ts';

export const TYPE_NAMES: Record<DestinationType, string> = {
  smtp: 'Mail',
  slack: 'Slack',
  teams: 'Microsoft Teams',
  pagerduty: 'PagerDuty',
  webhook: 'Webhook',
};

const BLANK = {
  name: '',
  secret: '',
  url: '',
  host: '',
  port: '587',
  username: '',
  from: '',
  to: '',
  quietFrom: '',
  quietTo: '',
};
type Text = typeof BLANK;

/** The time zone of the browser. */
const TIME_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

const isType = (text: string): text is DestinationType =>
  DESTINATION_TYPES.some((type) => type === text);
const isEncryption = (text: string): text is SmtpEncryption =>
  SMTP_ENCRYPTIONS.some((one) => one === text);

export function NewDestination() {
  const me = useMe();
  const [type, setType] = useState<DestinationType>('smtp');
  const [encryption, setEncryption] = useState<SmtpEncryption>('starttls');
  const [form, setForm] = useState(BLANK);
  const [passes, setPasses] = useState(true);
  const [secret, setSecret] = useState<string | null>(null);
  const set = (change: Partial<Text>): void => setForm({ ...form, ...change });
  const create = useCall(
    () => createDestination(me.project.id, requestOf(type, form, encryption, passes)),
    {
      quiet: true,
      onDone: ({ secret: made }) => {
        setSecret(made ?? null);
        setForm(BLANK);
      },
    },
  );
  return (
    <Card title="New destination" hint="gets the messages of all incidents">
      <Form
        call={create}
        why={whyIncomplete(type, form)}
        onSubmit={() => create.run()}
        submit="Create the destination"
      >
        <Fields>
          <NativeSelect
            label="Type"
            value={type}
            onChange={({ currentTarget: { value } }) => isType(value) && setType(value)}
            data={DESTINATION_TYPES.map((value) => ({ value, label: TYPE_NAMES[value] }))}
          />
          <NameInput
            label="Name"
            placeholder="on call"
            value={form.name}
            onChange={(name) => set({ name })}
          />
        </Fields>
        {type === 'smtp' ? (
          <MailFields form={form} set={set} encryption={encryption} setEncryption={setEncryption} />
        ) : (
          <HookFields type={type} form={form} set={set} />
        )}
        <Fields>
          <TextField
            label="Quiet from"
            placeholder="22:00"
            value={form.quietFrom}
            onChange={(quietFrom) => set({ quietFrom })}
          />
          <TextField
            label={`to (${TIME_ZONE})`}
            placeholder="07:00"
            value={form.quietTo}
            onChange={(quietTo) => set({ quietTo })}
          />
          <Checkbox
            label="Critical messages pass"
            checked={passes}
            onChange={(event) => setPasses(event.currentTarget.checked)}
          />
        </Fields>
      </Form>
      <Secret
        title="The secret that signs messages"
        label="secret"
        value={secret}
        onClose={() => setSecret(null)}
      />
    </Card>
  );
}

type FieldsProps = { form: Text; set: (change: Partial<Text>) => void };

function MailFields({
  form,
  set,
  encryption,
  setEncryption,
}: FieldsProps & {
  encryption: SmtpEncryption;
  setEncryption: (encryption: SmtpEncryption) => void;
}) {
  return (
    <>
      <Fields>
        <TextField
          label="Mail server"
          placeholder="mail.example.com"
          value={form.host}
          onChange={(host) => set({ host })}
        />
        <TextField label="Port" value={form.port} onChange={(port) => set({ port })} />
        <NativeSelect
          label="Encryption"
          value={encryption}
          onChange={({ currentTarget: { value } }) => isEncryption(value) && setEncryption(value)}
          data={[...SMTP_ENCRYPTIONS]}
        />
        <TextField
          label="Username (empty: no login)"
          value={form.username}
          onChange={(username) => set({ username })}
        />
        <SecretField label="Password" value={form.secret} onChange={(secret) => set({ secret })} />
      </Fields>
      <Fields>
        <TextField
          label="From"
          placeholder="howdah@example.com"
          value={form.from}
          onChange={(from) => set({ from })}
        />
        <TextField
          label="To, separated by commas"
          placeholder="dba@example.com"
          wide
          value={form.to}
          onChange={(to) => set({ to })}
        />
      </Fields>
    </>
  );
}

function HookFields({ type, form, set }: FieldsProps & { type: DestinationType }) {
  const isPager = type === 'pagerduty';
  return (
    <Fields>
      <SecretField
        label={isPager ? 'Routing key' : 'URL'}
        value={form.secret}
        onChange={(secret) => set({ secret })}
      />
      {isPager && (
        <TextField
          label="Events API (empty: the first service region)"
          placeholder="https://events.eu.pagerduty.com/v2/enqueue"
          wide
          value={form.url}
          onChange={(url) => set({ url })}
        />
      )}
    </Fields>
  );
}

function whyIncomplete(type: DestinationType, form: Text): string | null {
  if (form.name.trim() === '') return 'type a name first';
  if ((form.quietFrom === '') !== (form.quietTo === '')) return 'type both quiet hours, or none';
  if (type !== 'smtp') return form.secret === '' ? 'type the URL or the routing key first' : null;
  if (form.host === '' || form.from === '' || form.to === '')
    return 'type the mail server, the sender and a recipient first';
  return form.username !== '' && form.secret === '' ? 'type the password first' : null;
}

function requestOf(
  type: DestinationType,
  form: Text,
  encryption: SmtpEncryption,
  passes: boolean,
): Request {
  const quiet = {
    from: form.quietFrom,
    to: form.quietTo,
    time_zone: TIME_ZONE,
    critical_passes: passes,
  };
  return {
    name: form.name.trim(),
    type,
    config: configOf(type, form, encryption),
    ...(form.quietFrom === '' ? {} : { quiet_hours: quiet }),
  };
}

function configOf(
  type: DestinationType,
  { secret, url, host, port, username, from, to }: Text,
  encryption: SmtpEncryption,
): Request['config'] {
  switch (type) {
    case 'smtp':
      return {
        host: host.trim(),
        port: Number(port),
        encryption,
        from: from.trim(),
        to: to.split(',').map((address) => address.trim()),
        ...(username === '' ? {} : { username, password: secret }),
      };
    case 'pagerduty':
      return { routing_key: secret.trim(), ...(url.trim() === '' ? {} : { url: url.trim() }) };
    case 'slack':
    case 'teams':
    case 'webhook':
      return { url: secret.trim() };
  }
}
