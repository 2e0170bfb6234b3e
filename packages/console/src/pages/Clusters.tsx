/** The Kubernetes clusters that are regions, for operators. */
import { useQuery } from '@tanstack/react-query';
import { useState, type ReactNode } from 'react';
import { Checkbox } from '@mantine/core';
import { ADDON_EXTENSIONS, type AddonExtension } from '@howdah/contract/types';
import { Check, TriangleAlert, X } from 'lucide-react';
import {
  addRegion,
  clusterDoctorQuery,
  removeRegion,
  type AddRegion,
  type Cluster,
  setObjectStore,
  type SetObjectStore,
  setImages,
  type SetImages,
  type Finding,
} from '../api-project.ts';
import { ConfirmName } from '../components/ConfirmName.tsx';
import { Fields, FileField, Form, TextField, SecretField } from '../components/Form.tsx';
import { ActionButton, Card, ErrorNotice, Facts, LinkButton } from '../components/ui.tsx';
import { useCall } from '../components/use-call.tsx';
import { useMe } from '../session.ts';
import { whyNotOperate } from '../status.ts';
import ui from './project.module.css';

/** Where the services of a region run, its settings, what its cluster lacks, and the end of it. */
export function ClusterFacts({ cluster }: { cluster: Cluster }) {
  const { code } = cluster;
  const why = whyNotOperate(useMe());
  const [form, setForm] = useState<FormName>(null);
  const close = () => setForm(null);
  const doctor = useQuery({ ...clusterDoctorQuery(code), enabled: false });
  return (
    <div className={ui.stack}>
      <Facts rows={factsOf(cluster)} />
      <ErrorNotice error={doctor.error} />
      {doctor.data !== undefined && (
        <section aria-label={`The cluster of ${code}`}>
          <Findings findings={doctor.data} />
        </section>
      )}
      <div className={ui.row}>
        <FormButton name="images" label="Images" form={form} setForm={setForm} />
        <FormButton name="store" label="Object store" form={form} setForm={setForm} />
        <ActionButton
          variant="default"
          why={why}
          loading={doctor.isFetching}
          onClick={() => void doctor.refetch()}
        >
          Examine the cluster
        </ActionButton>
        <ConfirmName
          label="Remove…"
          title={`Remove ${code}`}
          name={code}
          why={why}
          submit="Remove the region"
          call={() => removeRegion(code)}
        >
          The region must have no services, deleted ones included. Nothing in its cluster is
          changed.
        </ConfirmName>
      </div>
      {form === 'images' && <ClusterImages cluster={cluster} onDone={close} />}
      {form === 'store' && <ClusterStore cluster={cluster} onDone={close} />}
    </div>
  );
}

type FormName = 'images' | 'store' | null;

/** Shows a form below, or hides it. */
function FormButton({
  name,
  label,
  form,
  setForm,
}: {
  name: FormName;
  label: string;
  form: FormName;
  setForm: (form: FormName) => void;
}) {
  const isShown = form === name;
  return (
    <ActionButton
      variant="default"
      why={null}
      aria-expanded={isShown}
      onClick={() => setForm(isShown ? null : name)}
    >
      {isShown ? `Close: ${label}` : `${label}…`}
    </ActionButton>
  );
}

type Row = [string, ReactNode];

/** Where pods run, as far as it is set: `howdah region set-placement` does that. */
function placeRows(
  {
    node_selector: labels,
    tolerations,
    topology_spread: spread,
    priority_class,
  }: Cluster['placement'],
  services: number,
): Row[] {
  const texts: [string, string][] = [
    [
      'Nodes',
      Object.entries(labels ?? {})
        .map(([key, value]) => `${key}=${value}`)
        .join(', '),
    ],
    ['Tolerations', (tolerations ?? []).map(({ key, value }) => [key, value].join('=')).join(', ')],
    ['Spread over', (spread ?? []).map(({ topology_key: key }) => key).join(', ')],
    ['Priority class', priority_class ?? ''],
    ['Services with another placement', services === 0 ? '' : `${services}`],
  ];
  return texts
    .filter(([, text]) => text !== '')
    .map(([name, text]): Row => [name, <span className="mono">{text}</span>]);
}

const factsOf = ({
  server,
  host,
  domain,
  first_port: first,
  last_port: last,
  storage_class: storage,
  images,
  extensions,
  pooler_image: pooler,
  placement,
  service_placements: services,
  wal_storage_class: walClass,
  image_pull_registries: registries,
  object_store: store,
}: Cluster): [string, ReactNode][] => [
  ['API', <span className="mono">{server}</span>],
  [
    'Clients connect to',
    <span className="mono">{domain === null ? host : `SERVICE.${domain}`}</span>,
  ],
  ['Ports', first === last ? `${first}` : `${first} to ${last}`],
  ['Storage class', storage ?? 'the default one'],
  ...Object.entries(images).map(([major, image]): [string, ReactNode] => [
    `PostgreSQL ${major}`,
    <>
      <span className="mono">{image}</span>
      {(extensions[major] ?? []).map((name) => `, ${name}`)}
    </>,
  ]),
  ['PgBouncer', <span className="mono">{pooler}</span>],
  ...placeRows(placement, Object.keys(services).length),
  ...(walClass === null ? [] : [['Storage class of WAL', walClass] satisfies Row]),
  ...(registries.length === 0 ? [] : [['Image pull secret', registries.join(', ')] satisfies Row]),
  [
    'Object store',
    store === null ? (
      'none: services can be forked from their snapshots only'
    ) : (
      <span className="mono">{`${store.bucket}/${store.folder} at ${store.endpoint}`}</span>
    ),
  ],
];

const BLANK = {
  code: '',
  kubeconfig: '',
  context: '',
  host: '',
  domain: '',
  first_port: '',
  last_port: '',
  storage_class: '',
  pooler_image: '',
};
type Draft = typeof BLANK;

/** The form that adds a cluster, with the fields of `howdah region add`; images have their own. */
export function NewCluster() {
  const why = whyNotOperate(useMe());
  const [draft, setDraft] = useState(BLANK);
  const [isMore, setMore] = useState(false);
  const add = useCall(() => addRegion(requestOf(draft)), {
    quiet: true,
    onDone: () => {
      setDraft(BLANK);
      setMore(false);
    },
  });
  const of = (name: keyof Draft) => ({
    value: draft[name],
    onChange: (value: string) => setDraft((before) => ({ ...before, [name]: value })),
  });
  return (
    <Card title="New region on Kubernetes" hint="a cluster with the CloudNativePG operator">
      <Form
        call={add}
        why={why ?? (draft.code.trim() === '' ? 'type a code first' : null)}
        onSubmit={() => add.run()}
        submit="Add the region"
      >
        <Fields>
          <TextField label="Code" placeholder="kube" {...of('code')} />
          <FileField
            label="Kubeconfig"
            placeholder="the account of the pod"
            {...of('kubeconfig')}
          />
          <TextField label="Clients connect to" placeholder="the first node" {...of('host')} />
        </Fields>
        {isMore && (
          <Fields>
            <TextField label="Context" placeholder="the current one" {...of('context')} />
            <TextField label="Domain" placeholder="none: host and ports" {...of('domain')} />
            <TextField label="First port" placeholder="30000" {...of('first_port')} />
            <TextField label="Last port" placeholder="32767" {...of('last_port')} />
            <TextField label="Storage class" placeholder="the default" {...of('storage_class')} />
            <TextField
              label="Image of PgBouncer"
              placeholder="that of CloudNativePG’s project"
              wide
              {...of('pooler_image')}
            />
          </Fields>
        )}
        <div>
          <LinkButton onClick={() => setMore(!isMore)}>
            {isMore ? 'Fewer settings' : 'More settings'}
          </LinkButton>
        </div>
      </Form>
    </Card>
  );
}

/** Fields that are left empty have the defaults of the API. */
function requestOf({ code, first_port: first, last_port: last, ...texts }: Draft): AddRegion {
  const filled = Object.entries(texts).filter(([, value]) => value.trim() !== '');
  return {
    code: code.trim(),
    ...Object.fromEntries(filled.map(([name, value]) => [name, value.trim()])),
    ...(first.trim() === '' ? {} : { first_port: Number(first) }),
    ...(last.trim() === '' ? {} : { last_port: Number(last) }),
  };
}

// The form that sets the object store of a region, as `howdah region object-store` does.

/** The texts of the form; a key that was set is never shown. */
type StoreDraft = {
  endpoint: string;
  bucket: string;
  region: string;
  key_id: string;
  key: string;
};

const LABELS: Record<keyof StoreDraft, string> = {
  endpoint: 'Address',
  bucket: 'Bucket',
  region: 'Region',
  key_id: 'Key id',
  key: 'Key',
};

/** @param onDone called once the object store is set */
function ClusterStore({ cluster, onDone }: { cluster: Cluster; onDone: () => void }) {
  const { code, object_store: before } = cluster;
  const [draft, setDraft] = useState(() => draftOf(before));
  const [caPem, setCaPem] = useState('');
  const [move, setMove] = useState(false);
  const set = useCall(() => setObjectStore(code, storeRequest(draft, caPem, move)), {
    quiet: true,
    onDone,
  });
  const of = (name: keyof StoreDraft) => ({
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

const draftOf = (store: Cluster['object_store']): StoreDraft => ({
  endpoint: store?.endpoint ?? '',
  bucket: store?.bucket ?? '',
  region: store?.region ?? '',
  key_id: store?.key_id ?? '',
  key: '',
});

function whyIncomplete(draft: StoreDraft): string | null {
  for (const [name, value] of Object.entries(draft))
    if (value.trim() === '') return `fill in first: ${Reflect.get(LABELS, name)}`;
  return null;
}

const storeRequest = (
  { key, ...texts }: StoreDraft,
  caPem: string,
  move: boolean,
): SetObjectStore => ({
  endpoint: texts.endpoint.trim(),
  bucket: texts.bucket.trim(),
  region: texts.region.trim(),
  key_id: texts.key_id.trim(),
  key,
  ...(caPem === '' ? {} : { ca_pem: caPem }),
  ...(move ? { move } : {}),
});

// The form that sets the images of a region on Kubernetes, as `howdah region set-images` does.

/** An image as the form has it. */
type Version = { major: string; image: string; extensions: AddonExtension[] };

/** @param onDone called once the images are set */
function ClusterImages({ cluster, onDone }: { cluster: Cluster; onDone: () => void }) {
  const [versions, setVersions] = useState(() => versionsOf(cluster));
  const [pooler, setPooler] = useState(cluster.pooler_image);
  const set = useCall(() => setImages(cluster.code, imagesRequest(versions, pooler)), {
    quiet: true,
    onDone,
  });
  const change = (place: number, changed: Partial<Version>): void =>
    setVersions((before) =>
      before.map((one, index) => (index === place ? { ...one, ...changed } : one)),
    );
  return (
    <Form
      call={set}
      why={whyNotOperate(useMe()) ?? whyImagesIncomplete(versions)}
      onSubmit={() => set.run()}
      submit="Set the images"
    >
      {versions.map((version, place) => (
        // Versions are added at the end only.
        // oxlint-disable-next-line react/no-array-index-key
        <VersionFields key={place} version={version} change={(with_) => change(place, with_)} />
      ))}
      <div>
        <LinkButton
          onClick={() => setVersions([...versions, { major: '', image: '', extensions: [] }])}
        >
          Another version
        </LinkButton>
      </div>
      <Fields>
        <TextField label="Image of PgBouncer" wide value={pooler} onChange={setPooler} />
      </Fields>
      <p className={ui.muted}>
        Servers get another image with their next restart, resize or start. Poolers get theirs at
        once, which ends their sessions. A version whose image is empty is left out.
      </p>
    </Form>
  );
}

function VersionFields({
  version: { major, image, extensions },
  change,
}: {
  version: Version;
  change: (changed: Partial<Version>) => void;
}) {
  return (
    <Fields>
      <TextField
        label="Version of PostgreSQL"
        placeholder="18"
        value={major}
        onChange={(text) => change({ major: text })}
      />
      <TextField
        label={`Image of PostgreSQL ${major}`}
        placeholder="ghcr.io/cloudnative-pg/postgresql:18-standard-trixie"
        wide
        value={image}
        onChange={(text) => change({ image: text })}
      />
      {ADDON_EXTENSIONS.map((name) => (
        <Checkbox
          key={name}
          label={`has ${name}`}
          checked={extensions.includes(name)}
          onChange={(event) =>
            change({
              extensions: event.currentTarget.checked
                ? [...extensions, name]
                : extensions.filter((other) => other !== name),
            })
          }
        />
      ))}
    </Fields>
  );
}

const versionsOf = ({ images, extensions }: Cluster): Version[] =>
  Object.entries(images).map(([major, image]) => ({
    major,
    image,
    extensions: [...(extensions[major] ?? [])],
  }));

function whyImagesIncomplete(versions: readonly Version[]): string | null {
  const kept = versions.filter(isKept);
  if (kept.length === 0) return 'type an image first';
  if (kept.some(({ major }) => major.trim() === '')) return 'type the version of each image first';
  const majors = new Set(kept.map(({ major }) => major.trim()));
  return majors.size < kept.length ? 'two images have the same version: leave one of them' : null;
}

const isKept = ({ image }: Version): boolean => image.trim() !== '';

function imagesRequest(versions: readonly Version[], pooler: string): SetImages {
  const kept = versions
    .filter(isKept)
    .map(({ major, ...rest }) => ({ major: major.trim(), ...rest }));
  return {
    images: Object.fromEntries(kept.map(({ major, image }) => [major, image.trim()])),
    extensions: Object.fromEntries(
      kept.flatMap(({ major, extensions }) =>
        extensions.length === 0 ? [] : [[major, extensions]],
      ),
    ),
    ...(pooler.trim() === '' ? {} : { pooler_image: pooler.trim() }),
  };
}

const LOOK: Record<Finding['state'], ReactNode> = {
  ok: <Check size={17} color="var(--good)" aria-label="fine" />,
  note: <TriangleAlert size={17} color="var(--warn)" aria-label="a note" />,
  missing: <X size={17} color="var(--bad)" aria-label="missing" />,
};

/** The findings on a machine or in a cluster, with the remedy for each. */
export function Findings({ findings }: { findings: readonly Finding[] }) {
  return (
    <ul className={ui.findings}>
      {findings.map(({ what, state, found, remedy }) => (
        <li key={`${what} ${found}`} className={ui.finding}>
          {LOOK[state]}
          <strong>{what}</strong>
          <span>
            {found}
            {remedy !== undefined && <span className={ui.remedy}>{remedy}</span>}
          </span>
        </li>
      ))}
    </ul>
  );
}
