/** The form that adds a repository; its fields are those of `howdah repo add`. */
import { REPOSITORY_TYPES, RETENTION_DAYS, type RepositoryType } from '@howdah/contract/values';
import { NativeSelect, NumberInput } from '@mantine/core';
import { useState } from 'react';
import { createRepository, type CreateRepository, type Repository } from '../api-project.ts';
import { Fields, FileField, Form, NameInput, SecretField, TextField } from '../components/Form.tsx';
import { Card, LinkButton } from '../components/ui.tsx';
import { useCall } from '../components/use-call.tsx';

export const REPOSITORY_TYPE_NAMES: Record<RepositoryType, string> = {
  s3: 'S3',
  azure: 'Azure Blob Storage',
  gcs: 'Google Cloud Storage',
  sftp: 'SFTP',
  path: 'Another disk of the machine',
};

const isType = (text: string): text is RepositoryType =>
  REPOSITORY_TYPES.some((type) => type === text);

/** The contents of all fields, of all types. */
const BLANK = {
  endpoint: '',
  bucket: '',
  region: '',
  uri_style: 'host' as 'host' | 'path',
  key_id: '',
  key: '',
  key_type: 'shared' as 'shared' | 'sas',
  ca_pem: '',
  account: '',
  container: '',
  host: '',
  port: '',
  user: '',
  private_key: '',
  host_fingerprint: '',
  path: '',
  retention_days: RETENTION_DAYS.default as number,
  take_over: '',
};
type Draft = typeof BLANK;
/** Those that are typed, or read from a file. */
type TextName = Exclude<keyof Draft, 'uri_style' | 'key_type' | 'retention_days'>;

/** The fields that a type needs, with their labels. */
const NEEDED: Record<RepositoryType, Partial<Record<TextName, string>>> = {
  s3: { endpoint: 'Address', bucket: 'Bucket', region: 'Region', key_id: 'Key id', key: 'Key' },
  azure: { account: 'Account', container: 'Container', key: 'Key' },
  gcs: { bucket: 'Bucket', key: 'Key' },
  sftp: {
    host: 'Host',
    user: 'User',
    private_key: 'Private key',
    host_fingerprint: 'Fingerprint of the host’s key',
  },
  path: { path: 'Directory' },
};

/** @param onAdded receives the new repository */
export function NewRepository({ onAdded }: { onAdded: (made: Repository) => void }) {
  const [type, setType] = useState<RepositoryType>('s3');
  const [name, setName] = useState('');
  const [draft, setDraft] = useState(BLANK);
  const [isMore, setMore] = useState(false);
  const create = useCall(
    () =>
      createRepository({
        name: name.trim(),
        type,
        retention_days: draft.retention_days,
        ...storageOf(type, draft),
        ...(draft.take_over === '' ? {} : { take_over: draft.take_over.trim() }),
      }),
    {
      quiet: true,
      onDone: (made) => {
        setName('');
        setDraft(BLANK);
        setMore(false);
        onAdded(made);
      },
    },
  );
  const change = (changed: Partial<Draft>): void =>
    setDraft((before) => ({ ...before, ...changed }));
  return (
    <Card title="New repository" hint="backups are encrypted before they leave the machine">
      <Form
        call={create}
        why={whyIncomplete(type, name, draft)}
        onSubmit={() => create.run()}
        submit="Add the repository"
      >
        <Fields>
          <NativeSelect
            label="Type"
            value={type}
            onChange={({ currentTarget: { value } }) => {
              if (!isType(value)) return;
              setType(value);
              setDraft(BLANK);
            }}
            data={REPOSITORY_TYPES.map((value) => ({
              value,
              label: REPOSITORY_TYPE_NAMES[value],
            }))}
          />
          <NameInput label="Name" placeholder="offsite" value={name} onChange={setName} />
        </Fields>
        <StorageFields key={type} type={type} draft={draft} change={change} />
        {isMore && <MoreFields type={type} draft={draft} change={change} />}
        <div>
          <LinkButton onClick={() => setMore(!isMore)}>
            {isMore ? 'Fewer settings' : 'More settings'}
          </LinkButton>
        </div>
      </Form>
    </Card>
  );
}

type FieldsProps = {
  type: RepositoryType;
  draft: Draft;
  change: (changed: Partial<Draft>) => void;
};

function StorageFields({ type, draft, change }: FieldsProps) {
  const of = (name: TextName) => ({
    label: NEEDED[type][name] ?? '',
    value: draft[name],
    onChange: (value: string) => change({ [name]: value }),
  });
  switch (type) {
    case 's3':
      return (
        <Fields>
          <TextField {...of('endpoint')} placeholder="https://s3.eu-west-1.amazonaws.com" wide />
          <TextField {...of('bucket')} placeholder="my-backups" />
          <TextField {...of('region')} placeholder="eu-west-1" />
          <TextField {...of('key_id')} placeholder="AKIA…" />
          <SecretField {...of('key')} />
        </Fields>
      );
    case 'azure':
      return (
        <Fields>
          <TextField {...of('account')} />
          <TextField {...of('container')} placeholder="backups" />
          <SecretField {...of('key')} />
        </Fields>
      );
    case 'gcs':
      return (
        <Fields>
          <TextField {...of('bucket')} placeholder="my-backups" />
          <FileField {...of('key')} placeholder="a file: service-account.json" />
        </Fields>
      );
    case 'sftp':
      return (
        <Fields>
          <TextField {...of('host')} placeholder="backup.example.com" />
          <TextField {...of('user')} placeholder="howdah" />
          <FileField {...of('private_key')} placeholder="a file: id_ed25519" />
          <TextField
            {...of('host_fingerprint')}
            placeholder="64 hexadecimal digits of SHA-256"
            wide
          />
        </Fields>
      );
    case 'path':
      return (
        <Fields>
          <TextField {...of('path')} placeholder="/mnt/disk2/howdah" wide />
        </Fields>
      );
  }
}

/** Fields with a default, and the one for a repository of a lost installation. */
function MoreFields({ type, draft, change }: FieldsProps) {
  return (
    <Fields>
      {(type === 'azure' || type === 'gcs') && (
        <TextField
          label="Address"
          placeholder="that of the public cloud"
          value={draft.endpoint}
          onChange={(value) => change({ endpoint: value })}
        />
      )}
      {(type === 's3' || type === 'azure') && (
        <NativeSelect
          label={type === 's3' ? 'The bucket is in the' : 'The account is in the'}
          value={draft.uri_style}
          onChange={({ currentTarget: { value } }) =>
            change({ uri_style: value === 'path' ? 'path' : 'host' })
          }
          data={[
            { value: 'host', label: 'host name' },
            { value: 'path', label: 'path' },
          ]}
        />
      )}
      {(type === 's3' || type === 'azure' || type === 'gcs') && (
        <FileField
          label="Certificates of its authority"
          placeholder="those of the system"
          value={draft.ca_pem}
          onChange={(value) => change({ ca_pem: value })}
        />
      )}
      {type === 'azure' && (
        <NativeSelect
          label="The key is"
          value={draft.key_type}
          onChange={({ currentTarget: { value } }) =>
            change({ key_type: value === 'sas' ? 'sas' : 'shared' })
          }
          data={[
            { value: 'shared', label: 'a key of the account' },
            { value: 'sas', label: 'a shared access signature' },
          ]}
        />
      )}
      {type === 'sftp' && (
        <TextField
          label="Port"
          placeholder="22"
          value={draft.port}
          onChange={(value) => change({ port: value })}
        />
      )}
      {type !== 'path' && (
        <TextField
          label="Directory"
          placeholder="/howdah"
          value={draft.path}
          onChange={(value) => change({ path: value })}
        />
      )}
      <NumberInput
        label="Days that backups are kept"
        min={RETENTION_DAYS.min}
        max={RETENTION_DAYS.max}
        allowDecimal={false}
        value={draft.retention_days}
        onChange={(value) => change({ retention_days: Number(value) })}
      />
      <TextField
        label="Take over from the installation"
        placeholder="the id of one that no longer runs"
        value={draft.take_over}
        onChange={(value) => change({ take_over: value })}
      />
    </Fields>
  );
}

function whyIncomplete(type: RepositoryType, name: string, draft: Draft): string | null {
  if (name.trim() === '') return 'type a name first';
  for (const [field, label] of Object.entries(NEEDED[type]))
    if (String(Reflect.get(draft, field)).trim() === '') return `fill in first: ${label}`;
  return null;
}

/** The storage of a repository, in the fields of its type. */
function storageOf(
  type: RepositoryType,
  draft: Draft,
): Omit<CreateRepository, 'name' | 'type' | 'retention_days' | 'take_over'> {
  const path = draft.path.trim() === '' ? {} : { path: draft.path.trim() };
  const server = {
    ...(draft.endpoint.trim() === '' ? {} : { endpoint: draft.endpoint.trim() }),
    ...(draft.ca_pem === '' ? {} : { ca_pem: draft.ca_pem }),
  };
  switch (type) {
    case 's3':
      return {
        ...path,
        ...server,
        bucket: draft.bucket.trim(),
        region: draft.region.trim(),
        uri_style: draft.uri_style,
        key_id: draft.key_id.trim(),
        key: draft.key,
      };
    case 'azure':
      return {
        ...path,
        ...server,
        account: draft.account.trim(),
        container: draft.container.trim(),
        key: draft.key,
        key_type: draft.key_type,
        uri_style: draft.uri_style,
      };
    case 'gcs':
      return { ...path, ...server, bucket: draft.bucket.trim(), key: draft.key };
    case 'sftp':
      return {
        ...path,
        host: draft.host.trim(),
        ...(draft.port.trim() === '' ? {} : { port: Number(draft.port) }),
        user: draft.user.trim(),
        private_key: draft.private_key,
        host_fingerprint: draft.host_fingerprint.trim(),
      };
    case 'path':
      return path;
  }
}
