import { EVENT_TYPES, type EventType } from '@howdah/contract/values';
import { Button, Chip, TextInput } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Webhook as WebhookIcon } from 'lucide-react';
import { useState } from 'react';
import {
  createWebhook,
  deliveriesQuery,
  webhookCalls,
  webhooksQuery,
  type Delivery,
  type Webhook,
} from '../api-project.ts';
import { Confirm } from '../components/Confirm.tsx';
import { Form } from '../components/Form.tsx';
import { Load, ActionButton, Ago, Card, Empty, Notice, Pill } from '../components/ui.tsx';
import { Rows } from '../components/Rows.tsx';
import { Secret } from '../components/Secret.tsx';
import { useCall } from '../components/use-call.tsx';
import { duration } from '../format.ts';
import { useMe } from '../session.ts';
import { whyReadOnly } from '../status.ts';
import ui from './project.module.css';
import { ResourcePage } from './ResourcePage.tsx';

const isEventType = (name: string): name is EventType => EVENT_TYPES.some((type) => type === name);

export function Webhooks() {
  const { project } = useMe();
  const webhooks = useQuery({ ...webhooksQuery(project.id), refetchInterval: 5000 });
  return (
    <ResourcePage
      title="Webhooks"
      about={
        'A webhook delivers events to a program of yours. ' +
        'Deliveries are signed as in Standard Webhooks, and repeated until they are answered.'
      }
      what="change webhooks"
      form={<NewWebhook />}
      query={webhooks}
      empty={
        <Empty icon={WebhookIcon} title="No webhooks">
          A service became ready, an operation failed, a backup could not be verified: each is an
          event, delivered within seconds.
        </Empty>
      }
    >
      {(webhook) => <One key={webhook.id} webhook={webhook} />}
    </ResourcePage>
  );
}

function NewWebhook() {
  const me = useMe();
  const [url, setUrl] = useState('');
  const [types, setTypes] = useState<string[]>([]);
  const [secret, setSecret] = useState<string | null>(null);
  const create = useCall(
    () =>
      createWebhook(me.project.id, {
        url: url.trim(),
        ...(types.length === 0 ? {} : { types: types.filter(isEventType) }),
      }),
    {
      quiet: true,
      onDone: ({ secret: made }) => {
        setSecret(made ?? '');
        setUrl('');
      },
    },
  );
  const why = url.trim() === '' ? 'type an address first' : null;
  return (
    <Card
      title="New webhook"
      hint={types.length === 0 ? 'all events' : `${types.length} of ${EVENT_TYPES.length} events`}
    >
      <Form call={create} why={why} onSubmit={() => create.run()} submit="Create the webhook">
        <TextInput
          type="url"
          label="Address"
          placeholder="https://example.com/howdah"
          value={url}
          onChange={(event) => setUrl(event.currentTarget.value)}
        />
        <Chip.Group multiple value={types} onChange={setTypes}>
          <div className={ui.row} role="group" aria-label="Events" style={{ gap: 6 }}>
            {EVENT_TYPES.map((name) => (
              <Chip key={name} value={name} size="sm" variant="outline">
                {name}
              </Chip>
            ))}
          </div>
        </Chip.Group>
      </Form>
      <Secret
        title="The secret that signs deliveries"
        label="secret"
        value={secret}
        onClose={() => setSecret(null)}
      />
    </Card>
  );
}

function One({ webhook }: { webhook: Webhook }) {
  const me = useMe();
  const calls = webhookCalls(me.project.id, webhook.id);
  const [tested, setTested] = useState<Awaited<ReturnType<typeof calls.test>> | null>(null);
  const test = useCall(calls.test, { onDone: setTested });
  const remove = useCall(calls.delete);
  const redeliver = useCall(calls.redeliver);
  const deliveries = useQuery({
    ...deliveriesQuery(me.project.id, webhook.id),
    refetchInterval: 3000,
  });
  const why = whyReadOnly(me);
  return (
    <Card
      title={webhook.url}
      hint={webhook.types.length === 0 ? 'all events' : webhook.types.join(', ')}
    >
      <div className={ui.stack}>
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
            title="Delete the webhook"
            why={why}
            pending={remove.pending}
            onConfirm={() => remove.run()}
          >
            Nothing more is delivered to {webhook.url}; pending deliveries are dropped.
          </Confirm>
        </div>
        {tested !== null && (
          <Notice tone={tested.delivered ? 'good' : 'bad'}>
            <p>
              {tested.delivered
                ? `Delivered in ${duration(tested.elapsed_ms)}`
                : (tested.error ?? 'It was not delivered')}
              {tested.response_status !== null && `, answered with ${tested.response_status}`}
            </p>
          </Notice>
        )}
        <Load query={deliveries}>
          {(found) =>
            found.length === 0 ? (
              <p className={ui.muted}>Nothing has been delivered yet.</p>
            ) : (
              <Deliveries deliveries={found} why={why} onRedeliver={redeliver.run} />
            )
          }
        </Load>
      </div>
    </Card>
  );
}

const TONE = { pending: 'busy', delivered: 'good', failed: 'bad' } as const;
/** How many of the newest deliveries are shown at first. */
const SHOWN = 6;

function Deliveries({
  deliveries,
  why,
  onRedeliver,
}: {
  deliveries: readonly Delivery[];
  why: string | null;
  onRedeliver: (id: string) => void;
}) {
  const [all, setAll] = useState(false);
  return (
    <>
      <div className={ui.edgeless}>
        <Rows
          rows={all ? deliveries : deliveries.slice(0, SHOWN)}
          idOf={({ id }) => id}
          columns={[
            { title: 'Event', show: ({ type }) => type },
            {
              title: 'State',
              show: ({ status, error }) => (
                <>
                  <Pill tone={TONE[status]}>{status}</Pill>
                  <div className={ui.muted}>{error ?? ''}</div>
                </>
              ),
            },
            {
              title: 'Attempts',
              show: ({ attempts, response_status: answered }) =>
                `${attempts}${answered === null ? '' : `, answered with ${answered}`}`,
            },
            { title: 'Created', show: ({ created }) => <Ago iso={created} /> },
            {
              title: null,
              show: ({ id, status }) =>
                status === 'failed' && (
                  <ActionButton
                    variant="default"
                    size="xs"
                    why={why}
                    onClick={() => onRedeliver(id)}
                  >
                    Try again
                  </ActionButton>
                ),
            },
          ]}
        />
      </div>
      {deliveries.length > SHOWN && (
        <Button
          variant="default"
          size="xs"
          style={{ justifySelf: 'start' }}
          onClick={() => setAll(!all)}
        >
          {all ? `Show the newest ${SHOWN}` : `Show all ${deliveries.length}`}
        </Button>
      )}
    </>
  );
}
