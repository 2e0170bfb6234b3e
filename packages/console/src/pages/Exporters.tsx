import { EXPORTER_TYPES, type ExporterType } from '@howdah/contract/values';
import { NativeSelect, PasswordInput, TextInput } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { Send } from 'lucide-react';
import { useState } from 'react';
import type { Service } from '../api.ts';
import {
  createExporter,
  exporterCalls,
  exportersQuery,
  type Exporter,
  type ExporterConfig,
} from '../api-project.ts';
import { Confirm } from '../components/Confirm.tsx';
import { Fields, Form, NameInput } from '../components/Form.tsx';
import { ActionButton, Ago, Card, Code, CopyButton, Empty, Notice } from '../components/ui.tsx';
import { useCall } from '../components/use-call.tsx';
import { useRegions, useServices } from '../live.ts';
import { useMe } from '../session.ts';
import { whyReadOnly } from '../status.ts';
import ui from './project.module.css';
import { ResourcePage } from './ResourcePage.tsx';

const TYPE_NAMES: Record<ExporterType, string> = {
  PROMETHEUS_METRICS: 'Prometheus scrapes',
  PROMETHEUS_REMOTE_WRITE: 'Prometheus remote write',
  OTLP_METRICS: 'OpenTelemetry (OTLP)',
};

const isExporterType = (text: string): text is ExporterType =>
  EXPORTER_TYPES.some((type) => type === text);

export function Exporters() {
  const { project } = useMe();
  const exporters = useQuery({ ...exportersQuery(project.id), refetchInterval: 5000 });
  return (
    <ResourcePage
      title="Exporters"
      about="An exporter gives the metrics of services to a monitoring system of yours."
      what="change exporters"
      form={<NewExporter />}
      query={exporters}
      empty={
        <Empty icon={Send} title="No exporters">
          Create an exporter and attach services to it. Prometheus or an OpenTelemetry collector
          gets their metrics once a minute.
        </Empty>
      }
    >
      {(exporter) => <One key={exporter.exporter_id} exporter={exporter} />}
    </ResourcePage>
  );
}

const BLANK = { name: '', url: '', login: '', secret: '' };

function NewExporter() {
  const me = useMe();
  const { data: regions } = useRegions();
  const [type, setType] = useState<ExporterType>('PROMETHEUS_METRICS');
  const [chosen, setRegion] = useState('');
  const [form, setForm] = useState(BLANK);
  const codes = regions?.map(({ code }) => code) ?? [];
  const region = chosen === '' ? (codes[0] ?? 'local') : chosen;
  const create = useCall(
    () =>
      createExporter(me.project.id, {
        name: form.name.trim(),
        type,
        region_code: region,
        config: configOf(type, form),
      }),
    { quiet: true, onDone: () => setForm(BLANK) },
  );
  return (
    <Card title="New exporter" hint={`for services in the region ${region}`}>
      <Form
        call={create}
        why={whyIncomplete(type, form)}
        onSubmit={() => create.run()}
        submit="Create the exporter"
      >
        <Fields>
          <NativeSelect
            label="Type"
            value={type}
            onChange={({ currentTarget: { value } }) => isExporterType(value) && setType(value)}
            data={EXPORTER_TYPES.map((value) => ({ value, label: TYPE_NAMES[value] }))}
          />
          <NameInput
            label="Name"
            placeholder="monitoring"
            value={form.name}
            onChange={(name) => setForm({ ...form, name })}
          />
          {codes.length > 1 && (
            <NativeSelect
              label="Region"
              value={region}
              onChange={(event) => setRegion(event.currentTarget.value)}
              data={codes}
            />
          )}
        </Fields>
        <ConfigFields type={type} form={form} onChange={setForm} />
      </Form>
    </Card>
  );
}

/** The words for the login of each type: who logs in, and with what. */
const LOGIN: Record<ExporterType, { login: string; secret: string }> = {
  PROMETHEUS_METRICS: { login: 'Username', secret: 'Password' },
  PROMETHEUS_REMOTE_WRITE: { login: 'Username (empty: token)', secret: 'Password or token' },
  OTLP_METRICS: { login: 'Header', secret: 'Value of the header' },
};

/** The path that receivers of a type have in most cases. */
const URL_PATH: Record<ExporterType, string> = {
  PROMETHEUS_METRICS: '',
  PROMETHEUS_REMOTE_WRITE: 'api/v1/write',
  OTLP_METRICS: 'v1/metrics',
};

function ConfigFields({
  type,
  form,
  onChange,
}: {
  type: ExporterType;
  form: typeof BLANK;
  onChange: (form: typeof BLANK) => void;
}) {
  return (
    <Fields>
      {type !== 'PROMETHEUS_METRICS' && (
        <TextInput
          type="url"
          label="Address"
          placeholder={`https://example.com/${URL_PATH[type]}`}
          value={form.url}
          onChange={(event) => onChange({ ...form, url: event.currentTarget.value })}
          style={{ flex: '2 1 240px' }}
        />
      )}
      <TextInput
        label={LOGIN[type].login}
        placeholder={type === 'OTLP_METRICS' ? 'Authorization' : 'prometheus'}
        autoComplete="off"
        value={form.login}
        onChange={(event) => onChange({ ...form, login: event.currentTarget.value })}
        style={{ flex: '1 1 160px' }}
      />
      <PasswordInput
        label={LOGIN[type].secret}
        autoComplete="new-password"
        value={form.secret}
        onChange={(event) => onChange({ ...form, secret: event.currentTarget.value })}
        visibilityToggleButtonProps={{ 'aria-label': 'Show the secret' }}
        style={{ flex: '1 1 160px' }}
      />
    </Fields>
  );
}

function whyIncomplete(type: ExporterType, { name, url, login, secret }: typeof BLANK) {
  if (name.trim() === '') return 'type a name first';
  if (type === 'PROMETHEUS_METRICS')
    return login === '' || secret === '' ? 'type a username and a password first' : null;
  if (url.trim() === '') return 'type an address first';
  return login !== '' && secret === '' ? 'type the secret first' : null;
}

function configOf(type: ExporterType, { url, login, secret }: typeof BLANK): ExporterConfig {
  const username = login.trim();
  const basic = { username, password: secret };
  switch (type) {
    case 'PROMETHEUS_METRICS':
      return basic;
    case 'PROMETHEUS_REMOTE_WRITE':
      if (secret === '') return { url: url.trim() };
      return { url: url.trim(), ...(username === '' ? { bearer_token: secret } : basic) };
    case 'OTLP_METRICS':
      return { url: url.trim(), ...(username === '' ? {} : { headers: { [username]: secret } }) };
  }
}

function One({ exporter }: { exporter: Exporter }) {
  const me = useMe();
  const { data: services } = useServices();
  const { exporter_id: id, name, warning } = exporter;
  const remove = useCall(exporterCalls(me.project.id, id).delete);
  const hasIt = ({ metric_exporter_id: has }: Service): boolean => has === id;
  const attached = services?.filter(hasIt) ?? [];
  const why = whyReadOnly(me);
  return (
    <Card
      title={name}
      hint={
        <span className={ui.head}>
          <span className="mono">{id}</span>
          <CopyButton value={id} label="Copy the id" />
          <Confirm
            label="Delete"
            title={`Delete ${name}`}
            why={
              why ?? (attached.length > 0 ? 'services have this exporter: detach it first' : null)
            }
            pending={remove.pending}
            onConfirm={() => remove.run()}
          >
            No service has this exporter.
          </Confirm>
        </span>
      }
    >
      <div className={ui.stack}>
        <Receiver exporter={exporter} />
        {warning !== undefined && <Notice tone="warn">{warning}</Notice>}
        <div className={ui.inside} role="group" aria-label={`Services with ${name}`}>
          {attached.length === 0 && <span className={ui.muted}>No service has this exporter.</span>}
          {attached.map((service) => (
            <Attached key={service.service_id} service={service} exporter={exporter} />
          ))}
        </div>
        {why === null && (
          <Attach exporter={exporter} services={services?.filter((one) => !hasIt(one)) ?? []} />
        )}
      </div>
    </Card>
  );
}

/** Who gets the metrics, and how that goes. */
function Receiver({ exporter: { type, config, last_success: last } }: { exporter: Exporter }) {
  const { endpoint, url, username, header_names: headers } = config;
  return (
    <div className={ui.peers}>
      <p className={ui.muted}>
        {TYPE_NAMES[type]}
        {username === undefined ? '' : `, as ${username}`}
        {headers === undefined ? '' : `, with the header ${headers.join(', ')}`}
        {last === undefined ? '' : ', '}
        {last === null && 'nothing was accepted yet'}
        {typeof last === 'string' && (
          <>
            last accepted <Ago iso={last} />
          </>
        )}
      </p>
      <Code value={endpoint ?? url ?? ''} label="the address" wrap />
    </div>
  );
}

function Attached({ service, exporter }: { service: Service; exporter: Exporter }) {
  const me = useMe();
  const { service_id: id, name } = service;
  const calls = exporterCalls(me.project.id, exporter.exporter_id);
  const detach = useCall(calls.detach);
  return (
    <span className={ui.head}>
      <Link to="/services/$id/metrics" params={{ id }} className={ui.chip}>
        {name}
      </Link>
      <ActionButton
        variant="subtle"
        size="xs"
        why={whyReadOnly(me, service.created_by)}
        loading={detach.pending}
        onClick={() => detach.run(id)}
      >
        Detach
      </ActionButton>
    </span>
  );
}

/** @param services those that do not have the exporter */
function Attach({ exporter, services }: { exporter: Exporter; services: readonly Service[] }) {
  const me = useMe();
  const [chosen, setChosen] = useState('');
  const attach = useCall(exporterCalls(me.project.id, exporter.exporter_id).attach, {
    quiet: true,
    onDone: () => setChosen(''),
  });
  const [first] = services;
  if (first === undefined) return null;
  const service = services.find(({ service_id: id }) => id === chosen) ?? first;
  return (
    <Form
      call={attach}
      why={whyReadOnly(me, service.created_by)}
      onSubmit={() => attach.run(service.service_id)}
      submit="Attach"
      button={{ variant: 'default' }}
      inline
    >
      <NativeSelect
        label="Service"
        value={service.service_id}
        onChange={(event) => setChosen(event.currentTarget.value)}
        data={services.map(({ service_id: value, name, metric_exporter_id: other }) => ({
          value,
          label: other === undefined ? name : `${name} (has another exporter)`,
        }))}
      />
    </Form>
  );
}
