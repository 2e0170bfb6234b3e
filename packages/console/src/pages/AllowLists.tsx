import { TextInput } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { ShieldCheck } from 'lucide-react';
import { useState } from 'react';
import {
  allowListCalls,
  allowListsQuery,
  createAllowList,
  type AllowList,
} from '../api-project.ts';
import { Confirm } from '../components/Confirm.tsx';
import { Form, NameInput } from '../components/Form.tsx';
import { Card, CopyButton, Empty } from '../components/ui.tsx';
import { useCall } from '../components/use-call.tsx';
import { useServices } from '../live.ts';
import { useMe } from '../session.ts';
import { whyReadOnly } from '../status.ts';
import ui from './project.module.css';
import { ResourcePage } from './ResourcePage.tsx';

export function AllowLists() {
  const { project } = useMe();
  const lists = useQuery({ ...allowListsQuery(project.id), refetchInterval: 5000 });
  return (
    <ResourcePage
      title="Allow lists"
      about="Only clients of the networks of its allow list can connect to a service."
      what="change allow lists"
      form={<NewList />}
      query={lists}
      empty={
        <Empty icon={ShieldCheck} title="No allow lists">
          Create a list, and attach it to a service on its page Network.
        </Empty>
      }
    >
      {(list) => <One key={list.allow_list_id} list={list} />}
    </ResourcePage>
  );
}

const networksOf = (text: string): string[] => text.split(/[\s,]+/).filter((part) => part !== '');

function NewList() {
  const me = useMe();
  const [description, setDescription] = useState('');
  const [text, setText] = useState('');
  const create = useCall(
    () =>
      createAllowList(me.project.id, {
        description: description.trim(),
        cidr_blocks: networksOf(text),
      }),
    {
      quiet: true,
      onDone: () => {
        setDescription('');
        setText('');
      },
    },
  );
  const why =
    description.trim() === '' || networksOf(text).length === 0
      ? 'type a description and networks first'
      : null;
  return (
    <Card title="New allow list">
      <Form call={create} why={why} onSubmit={() => create.run()} submit="Create the list" inline>
        <NameInput
          label="Description"
          placeholder="office"
          value={description}
          onChange={setDescription}
        />
        <NetworksInput value={text} onChange={setText} />
      </Form>
    </Card>
  );
}

function NetworksInput({ value, onChange }: { value: string; onChange: (text: string) => void }) {
  return (
    <TextInput
      label="Networks"
      placeholder="203.0.113.0/24, 2001:db8::/32"
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
      style={{ flex: '1 1 240px' }}
    />
  );
}

function One({ list }: { list: AllowList }) {
  const me = useMe();
  const { data: services } = useServices();
  const { allow_list_id: id, description } = list;
  const calls = allowListCalls(me.project.id, id);
  const remove = useCall(calls.delete);
  const attached = services?.filter((service) => service.allow_list_id === id) ?? [];
  return (
    <Card
      title={description}
      hint={
        <span className={ui.head}>
          <span className="mono">{id}</span>
          <CopyButton value={id} label="Copy the id" />
          <Confirm
            label="Delete"
            title={`Delete ${description}`}
            why={
              whyReadOnly(me) ??
              (attached.length > 0 ? 'services have this list: detach it first' : null)
            }
            pending={remove.pending}
            onConfirm={() => remove.run()}
          >
            No service has this list.
          </Confirm>
        </span>
      }
    >
      <div className={ui.inside} role="group" aria-label={`Services with ${description}`}>
        {attached.length === 0 && <span className={ui.muted}>No service has this list.</span>}
        {attached.map(({ service_id: service, name }) => (
          <Link
            key={service}
            to="/services/$id/network"
            params={{ id: service }}
            className={ui.chip}
          >
            {name}
          </Link>
        ))}
      </div>
      <Networks list={list} />
    </Card>
  );
}

function Networks({ list }: { list: AllowList }) {
  const me = useMe();
  const now = list.cidr_blocks.join(', ');
  const [typed, setTyped] = useState<string | null>(null);
  const text = typed ?? now;
  const change = useCall(
    () =>
      allowListCalls(me.project.id, list.allow_list_id).change({ cidr_blocks: networksOf(text) }),
    { quiet: true, onDone: () => setTyped(null) },
  );
  const why = whyReadOnly(me) ?? (text === now ? 'change the networks first' : null);
  return (
    <Form
      call={change}
      why={why}
      onSubmit={() => change.run()}
      submit="Save"
      button={{ variant: 'default' }}
      inline
    >
      <NetworksInput value={text} onChange={setTyped} />
    </Form>
  );
}
