import { NativeSelect } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Copy } from 'lucide-react';
import { useState } from 'react';
import { leaseCalls, leasesQuery, type Lease } from '../api-project.ts';
import { Confirm } from '../components/Confirm.tsx';
import { KeyName, ServiceName } from '../components/names.tsx';
import { Rows, type Column } from '../components/Rows.tsx';
import {
  ActionButton,
  Ago,
  Card,
  Empty,
  PageHead,
  Pill,
  Unread,
  Until,
} from '../components/ui.tsx';
import { useCall } from '../components/use-call.tsx';
import { useAreNamesRead } from '../live.ts';
import { useMe } from '../session.ts';
import { whyNotLease } from '../status.ts';
import ui from './project.module.css';

export function Leases() {
  const { project } = useMe();
  const { data, error } = useQuery({ ...leasesQuery(project.id), refetchInterval: 5000 });
  const areNamesRead = useAreNamesRead();
  return (
    <>
      <PageHead
        title="Leases"
        about="Copies of a service for tests. Each is removed at its end, with its data."
      />
      <Card flush>
        {data === undefined || !areNamesRead ? (
          <div style={{ padding: 20 }}>
            <Unread error={error} rows={5} />
          </div>
        ) : data.length === 0 ? (
          <Empty icon={Copy} title="No leases">
            <code>howdah lease take NAME -- npm test</code> runs tests with a copy of a service, and
            returns it when they end: docs/branches-and-tests.md.
          </Empty>
        ) : (
          <Rows rows={data} idOf={({ id }) => id} columns={COLUMNS} />
        )}
      </Card>
    </>
  );
}

const COLUMNS: readonly Column<Lease>[] = [
  {
    title: 'Lease',
    show: ({ id, service_id: server, database, reset, ready, problem }) => (
      <>
        <span className="mono">{id}</span> {!ready && <Pill tone="busy">not ready</Pill>}
        <div className={ui.muted}>
          {reset === 'database' && `database ${database} in `}
          <ServiceName id={server} />
        </div>
        {problem !== undefined && <div className={ui.muted}>{problem}</div>}
      </>
    ),
  },
  { title: 'Copy of', show: ({ from }) => <ServiceName id={from} /> },
  {
    title: 'Taken',
    show: ({ created, created_by: key }) => (
      <>
        <Ago iso={created} />
        {key !== undefined && (
          <div className={ui.muted}>
            by <KeyName publicKey={key} />
          </div>
        )}
      </>
    ),
  },
  {
    title: 'Ends',
    show: ({ expires_at: end }) => (end === undefined ? 'never' : <Until iso={end} />),
  },
  {
    title: null,
    show: (lease) => (
      <div className={ui.row}>
        <Extend lease={lease} />
        <Return lease={lease} />
      </div>
    ),
  },
];

/** The times that a lease is extended by, from now, by their seconds. */
const TIMES = [
  { value: '600', label: '10 minutes' },
  { value: '3600', label: 'an hour' },
  { value: '14400', label: '4 hours' },
  { value: '86400', label: 'a day' },
];

function Extend({ lease }: { lease: Lease }) {
  const me = useMe();
  const [seconds, setSeconds] = useState('3600');
  const extend = useCall(leaseCalls(me.project.id, lease.id).extend);
  return (
    <span className={ui.head}>
      <NativeSelect
        aria-label={`Extend ${lease.id} to end in`}
        size="xs"
        w={120}
        value={seconds}
        onChange={(event) => setSeconds(event.currentTarget.value)}
        data={TIMES}
      />
      <ActionButton
        variant="default"
        size="xs"
        why={whyNotLease(me, lease, 'extend')}
        loading={extend.pending}
        onClick={() => extend.run(Number(seconds))}
      >
        Extend
      </ActionButton>
    </span>
  );
}

function Return({ lease }: { lease: Lease }) {
  const me = useMe();
  const end = useCall(leaseCalls(me.project.id, lease.id).return);
  return (
    <Confirm
      label="Return"
      aria-label={`Return ${lease.id}`}
      title={`Return ${lease.id}`}
      why={whyNotLease(me, lease, 'return')}
      pending={end.pending}
      onConfirm={() => end.run()}
    >
      Its data is removed for good, and its sessions end.
    </Confirm>
  );
}
