/** The form that sets the object store of a region, as `howdah region object-store` does. */
import { Checkbox } from '@mantine/core';
import { useState } from 'react';
import { setObjectStore, type Cluster, type SetObjectStore } from '../api-project.ts';
import { Fields, FileField, Form, SecretField, TextField } from '../components/Form.tsx';
import { useCall } from '../components/use-call.tsx';
import { useMe } from '../session.ts';
import { whyNotOperate } from '../status.ts';
import ui from './project.module.css';

/** The texts of the form; a key that was set is never shown. */
type Draft = { endpoint: string; bucket: string; region: string; key_id: string; key: string };

const LABELS: Record<keyof Draft, string> = {
  endpoint: 'Address',
  bucket: 'Bucket',
  region: 'Region',
  key_id: 'Key id',
  key: 'Key',
};

/** @param onDone called once the object store is set */
export function ClusterStore({ cluster, onDone }: { cluster: Cluster; onDone: () => void }) {
  const { code, object_store: before } = cluster;
  const [draft, setDraft] = useState(() => draftOf(before));
  const [caPem, setCaPem] = useState('');
  const [move, setMove] = useState(false);
  const set = useCall(() => setObjectStore(code, requestOf(draft, caPem, move)), {
    quiet: true,
    onDone,
  });
  const of = (name: keyof Draft) => ({
    label: LABELS[name],
    value: draft[name],
    onChange: (value: string) => setDraft((now) => ({ ...now, [name]: value })),
  });
  return (
    <Form
      call={set}
      why={whyNotOperate(useMe()) ?? whyIncomplete(draft)}
      onSubmit={() => set.run()}
      submit="Set the object store"
    >
      <Fields>
        <TextField {...of('endpoint')} placeholder="https://s3.eu-west-1.amazonaws.com" wide />
        <TextField {...of('bucket')} placeholder="my-backups" />
        <TextField {...of('region')} placeholder="eu-west-1" />
        <TextField {...of('key_id')} placeholder="AKIA…" />
        <SecretField {...of('key')} />
        <FileField
          label="Certificates of its authority"
          placeholder="those of the system"
          value={caPem}
          onChange={setCaPem}
        />
      </Fields>
      {before !== null && (
        <Checkbox
          label="Another place: it begins empty, and nothing of before can be forked then"
          checked={move}
          onChange={(event) => setMove(event.currentTarget.checked)}
        />
      )}
      <p className={ui.muted}>
        WAL and base backups of its services are kept there. Services that run archive from their
        next restart on.
      </p>
    </Form>
  );
}

const draftOf = (store: Cluster['object_store']): Draft => ({
  endpoint: store?.endpoint ?? '',
  bucket: store?.bucket ?? '',
  region: store?.region ?? '',
  key_id: store?.key_id ?? '',
  key: '',
});

function whyIncomplete(draft: Draft): string | null {
  for (const [name, value] of Object.entries(draft))
    if (value.trim() === '') return `fill in first: ${Reflect.get(LABELS, name)}`;
  return null;
}

const requestOf = ({ key, ...texts }: Draft, caPem: string, move: boolean): SetObjectStore => ({
  endpoint: texts.endpoint.trim(),
  bucket: texts.bucket.trim(),
  region: texts.region.trim(),
  key_id: texts.key_id.trim(),
  key,
  ...(caPem === '' ? {} : { ca_pem: caPem }),
  ...(move ? { move } : {}),
});
