/** The Kubernetes clusters that are regions, for operators. */
import { useQuery } from '@tanstack/react-query';
import { useState, type ReactNode } from 'react';
import {
  addRegion,
  clusterDoctorQuery,
  removeRegion,
  type AddRegion,
  type Cluster,
} from '../api-project.ts';
import { ConfirmName } from '../components/ConfirmName.tsx';
import { Fields, FileField, Form, TextField } from '../components/Form.tsx';
import { ActionButton, Card, ErrorNotice, Facts, LinkButton } from '../components/ui.tsx';
import { useCall } from '../components/use-call.tsx';
import { useMe } from '../session.ts';
import { whyNotOperate } from '../status.ts';
import { ClusterImages } from './ClusterImages.tsx';
import { ClusterStore } from './ClusterStore.tsx';
import { Findings } from './Findings.tsx';
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
