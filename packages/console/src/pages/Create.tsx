import { NativeSelect, Radio, SegmentedControl, Switch, TextInput } from '@mantine/core';
import {
  ADDONS_OF_TYPE,
  ENVIRONMENTS,
  MAX_REPLICAS,
  NAME_MAX_CHARACTERS,
  type Environment,
  type ServiceType,
} from '@howdah/contract/types';
import { ENDS } from '@howdah/contract/permissions';
import type { Schemas } from '@howdah/client';
import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { Activity, Database, Sparkles, type LucideIcon } from 'lucide-react';
import { useState } from 'react';
import { DEFAULT_SIZE, defaultStorageGb, SERVICE_SIZES } from '@howdah/contract/sizes';
import { createService, rememberPassword, type Region } from '../api.ts';
import { vpcsQuery } from '../api-project.ts';
import { Choice } from '../components/Choice.tsx';
import {
  lifetimeOf,
  NO_LIFETIME,
  ServiceLifetimeInput,
  type ServiceLifetime,
} from '../components/Lifetime.tsx';
import { whyNoStorage, StorageInput } from '../components/Storage.tsx';
import {
  Load,
  ButtonLink,
  ActionButton,
  Card,
  Code,
  Denied,
  ErrorNotice,
  Notice,
  PageHead,
} from '../components/ui.tsx';
import { useCall } from '../components/use-call.tsx';
import { cores } from '../format.ts';
import { useFindRegion, useRegions } from '../live.ts';
import { useMe } from '../session.ts';
import { NO_ROOM, TYPE_NAMES, whyNotOperate, whyReadOnly } from '../status.ts';
import { cliOf, curlOf } from '../snippets.ts';
import classes from './create.module.css';

const TYPES: Record<ServiceType, { about: string; icon: LucideIcon }> = {
  TIMESCALEDB: {
    about: 'Time series and events, in hypertables (TimescaleDB).',
    icon: Activity,
  },
  POSTGRES: { about: 'Plain PostgreSQL with its own extensions.', icon: Database },
  VECTOR: { about: 'Embeddings and similarity search, with pgvector.', icon: Sparkles },
};
const isType = (value: string): value is ServiceType => value in TYPES;

type CreateForm = {
  name: string;
  /** The code; empty: the first region. */
  region: string;
  type: ServiceType;
  /** The major version; empty: as the region chooses. */
  version: string;
  size: string;
  /** Gigabytes; null: the default of the size. */
  storage: number | null;
  replicas: number;
  sync: number;
  pooler: boolean;
  /** The id; empty: no VPC. */
  vpc: string;
  environment: Environment;
  lifetime: ServiceLifetime;
};

export function Create() {
  const me = useMe();
  const why = whyReadOnly(me);
  return (
    <>
      <PageHead
        title="Create a service"
        about="A PostgreSQL server of its own, ready in about a second."
      >
        {whyNotOperate(me) === null && (
          <ButtonLink to="/create/from-kit" variant="default">
            From a recovery kit
          </ButtonLink>
        )}
      </PageHead>
      {why === null ? (
        <Regions />
      ) : (
        <div className={classes.form}>
          <Denied what="create services" why={why} />
          <div>
            <ButtonLink to="/services" variant="default">
              All services
            </ButtonLink>
          </div>
        </div>
      )}
    </>
  );
}

const Regions = () => (
  <Load query={useRegions()}>
    {([first, ...others]) => first !== undefined && <CreateForm regions={[first, ...others]} />}
  </Load>
);

/** The type that a region offers first. */
const firstType = ({ service_types: types }: Region): ServiceType =>
  types.find(({ available }) => available)?.service_type ?? 'POSTGRES';

function CreateForm({ regions }: { regions: readonly [Region, ...Region[]] }) {
  const { project } = useMe();
  const navigate = useNavigate();
  const [form, setForm] = useState<CreateForm>({
    name: '',
    region: '',
    type: firstType(regions[0]),
    version: '',
    size: String(regions[0].sizes[0]?.cpu_millis ?? 'shared'),
    storage: null,
    replicas: 0,
    sync: 0,
    pooler: false,
    vpc: '',
    environment: 'DEV',
    lifetime: NO_LIFETIME,
  });
  const region = regions.find(({ code }) => code === form.region) ?? regions[0];
  const change = (part: Partial<CreateForm>): void => setForm((old) => ({ ...old, ...part }));
  const request = requestOf(form);
  const create = useCall(() => createService(project.id, request), {
    quiet: true,
    onDone: (service) => {
      rememberPassword(service);
      void navigate({ to: '/services/$id', params: { id: service.service_id } });
    },
  });
  const findRegion = useFindRegion();
  const ha = region.high_availability;
  const here =
    useQuery(vpcsQuery(project.id)).data?.filter(
      (vpc) => findRegion(vpc.region_code)?.code === region.code,
    ) ?? [];
  const why =
    (form.storage === null ? null : whyNoStorage(form.storage)) ??
    (form.name.trim() === '' ? 'type a name first' : null);
  return (
    <form
      className={classes.grid}
      onSubmit={(event) => {
        event.preventDefault();
        if (why === null) create.run();
      }}
    >
      <div className={classes.form}>
        <Card title="Name">
          <TextInput
            aria-label="Name"
            placeholder="orders"
            size="md"
            data-autofocus
            required
            maxLength={NAME_MAX_CHARACTERS}
            value={form.name}
            onChange={(event) => change({ name: event.currentTarget.value })}
          />
        </Card>

        {regions.length > 1 && (
          <RegionCard
            regions={regions}
            value={region.code}
            onChange={(chosen) =>
              change({
                region: chosen === regions[0] ? '' : chosen.code,
                type: firstType(chosen),
                version: '',
                // A VPC is in one region.
                vpc: '',
                ...(chosen.high_availability.available ? {} : { replicas: 0, sync: 0 }),
                ...(chosen.pooler.available ? {} : { pooler: false }),
              })
            }
          />
        )}

        <Card title="Type" hint={`in the region ${region.code}`}>
          <Radio.Group
            aria-label="Type"
            value={form.type}
            onChange={(type) => isType(type) && change({ type, version: '' })}
          >
            <div className={classes.list}>
              {region.service_types.map(({ service_type: type, available, version, reason }) => {
                const { about, icon: Icon } = TYPES[type];
                return (
                  <Choice
                    key={type}
                    value={type}
                    why={
                      available ? null : `Not available: ${reason ?? 'this region cannot run it'}`
                    }
                    title={
                      <>
                        <Icon size={17} aria-hidden />
                        {TYPE_NAMES[type]}
                      </>
                    }
                  >
                    {about} PostgreSQL {version}.
                  </Choice>
                );
              })}
            </div>
          </Radio.Group>
        </Card>

        <VersionCard
          region={region}
          type={form.type}
          version={form.version}
          onChange={(version) => change({ version })}
        />

        <Card
          title="Size"
          hint={
            region.limits_enforced
              ? 'enforced by the operating system'
              : 'sets PostgreSQL’s memory; not enforced here'
          }
        >
          <Radio.Group aria-label="Size" value={form.size} onChange={(size) => change({ size })}>
            <div className={classes.sizes}>
              {region.sizes.map(({ cpu_millis: cpu, memory_gbs: memory, has_room: hasRoom }) => (
                <Choice
                  key={cpu}
                  value={String(cpu)}
                  title={cores(cpu)}
                  why={hasRoom ? null : `${memory} GB: ${NO_ROOM}`}
                >
                  {memory} GB
                </Choice>
              ))}
              <Choice value="shared" title="Shared">
                no limits
              </Choice>
            </div>
          </Radio.Group>
        </Card>

        <StorageCard
          size={form.size}
          storage={form.storage}
          onChange={(storage) => change({ storage })}
        />

        <Card title="High availability" hint="a standby is promoted when the primary fails">
          {ha.available ? (
            <>
              <SegmentedControl
                aria-label="Replicas"
                value={String(form.replicas)}
                onChange={(value) =>
                  change({ replicas: Number(value), sync: Math.min(form.sync, Number(value)) })
                }
                data={Array.from({ length: MAX_REPLICAS + 1 }, (_, n) => ({
                  value: String(n),
                  label: n === 0 ? 'None' : n === 1 ? '1 standby' : `${n} standbys`,
                }))}
              />
              <Switch
                mt="md"
                disabled={form.replicas === 0}
                checked={form.sync > 0}
                onChange={(event) => change({ sync: event.currentTarget.checked ? 1 : 0 })}
                label="Lose nothing: each write is on a standby before it is acknowledged"
                description={form.replicas === 0 ? 'this needs a standby' : undefined}
              />
            </>
          ) : (
            <Notice tone="warn">
              <p>{ha.reason ?? 'not available in this region'}</p>
            </Notice>
          )}
        </Card>

        <Card title="Connection pooler">
          <Switch
            checked={form.pooler}
            disabled={!region.pooler.available}
            onChange={(event) => change({ pooler: event.currentTarget.checked })}
            label="Share a few server connections among many clients"
            description={
              region.pooler.available
                ? `PgBouncer ${region.pooler.version ?? ''}, on a port of its own`
                : region.pooler.reason
            }
          />
        </Card>

        <Card
          title="Network"
          hint={
            form.vpc === ''
              ? 'all networks may connect'
              : 'only the VPC and its active peers may connect'
          }
        >
          <NativeSelect
            aria-label="VPC"
            value={form.vpc}
            onChange={(event) => change({ vpc: event.currentTarget.value })}
            data={[
              { value: '', label: 'In no VPC' },
              ...here.map(({ id, name, cidr }) => ({ value: id, label: `${name} (${cidr})` })),
            ]}
            {...(here.length === 0
              ? { description: 'There is no VPC in this region yet. Create one under VPCs.' }
              : {})}
          />
        </Card>

        <Card title="Environment" hint={`only admin keys may ${ENDS} a PROD service`}>
          <SegmentedControl<Environment>
            aria-label="Environment"
            value={form.environment}
            onChange={(environment) =>
              change({ environment, ...(environment === 'PROD' ? { lifetime: NO_LIFETIME } : {}) })
            }
            data={[...ENVIRONMENTS]}
          />
        </Card>

        {form.environment === 'DEV' && (
          <Card title="Lifetime" hint="it is deleted by itself; the time can be changed">
            <ServiceLifetimeInput
              value={form.lifetime}
              otherwise="Not deleted by itself"
              onChange={(lifetime) => change({ lifetime })}
            />
          </Card>
        )}
      </div>

      <div className={classes.aside}>
        <Card title="The same request" hint="as a command, and with curl">
          <div style={{ display: 'grid', gap: 12 }}>
            <Code value={cliOf(request)} label="command" />
            <Code value={curlOf(request)} label="curl" wrap />
          </div>
        </Card>
        <ErrorNotice error={create.error} />
        <ActionButton type="submit" size="md" why={why} loading={create.pending}>
          Create {form.name.trim() === '' ? 'the service' : form.name}
        </ActionButton>
      </div>
    </form>
  );
}

/** The request of the form. Defaults are left out, so that the calls shown are short. */
function requestOf({
  name,
  region,
  type,
  version,
  size,
  storage,
  replicas,
  sync,
  pooler,
  vpc,
  environment,
  lifetime,
}: CreateForm): Schemas['CreateService'] {
  return {
    name: name === '' ? 'orders' : name,
    ...(region === '' ? {} : { region_code: region }),
    addons: [...ADDONS_OF_TYPE[type]],
    ...(version === '' ? {} : { pg_version: version }),
    ...(size === 'shared' ? { cpu_millis: 'shared', memory_gbs: 'shared' } : { cpu_millis: size }),
    ...(storage === null ? {} : { storage_gb: storage }),
    ...(replicas === 0 ? {} : { replica_count: replicas, sync_replica_count: sync }),
    ...(pooler ? { enable_pooler: true } : {}),
    ...(vpc === '' ? {} : { vpc_id: vpc }),
    ...(environment === 'DEV' ? {} : { environment_tag: environment }),
    ...lifetimeOf(lifetime),
  };
}

// Cards of the form that creates a service.

/** Shown where there are several regions. */
export function RegionCard({
  regions,
  value,
  onChange,
}: {
  regions: readonly Region[];
  value: string;
  onChange: (region: Region) => void;
}) {
  return (
    <Card title="Region" hint="a service stays in its region, and so do its forks">
      <NativeSelect
        aria-label="Region"
        value={value}
        onChange={(event) => {
          const chosen = regions.find(({ code }) => code === event.currentTarget.value);
          if (chosen !== undefined) onChange(chosen);
        }}
        data={regions.map(({ code, engine }) => ({ value: code, label: `${code} (${engine})` }))}
      />
    </Card>
  );
}

/** Shown where there is a choice. */
export function VersionCard({
  region,
  type,
  version,
  onChange,
}: {
  region: Region;
  type: ServiceType;
  version: string;
  onChange: (version: string) => void;
}) {
  const offer = region.service_types.find(({ service_type }) => service_type === type);
  const versions = offer?.versions.filter(({ available }) => available) ?? [];
  if (versions.length < 2) return null;
  return (
    <Card
      title="PostgreSQL"
      hint="read replicas have the same version, forks the same or a newer one"
    >
      <NativeSelect
        aria-label="PostgreSQL version"
        value={version}
        onChange={(event) => onChange(event.currentTarget.value)}
        data={[
          { value: '', label: `Default (${offer?.version ?? ''})` },
          ...versions.map(({ pg_version: major, version: full }) => ({
            value: major,
            label: full ?? major,
          })),
        ]}
      />
    </Card>
  );
}

export function StorageCard({
  size,
  storage,
  onChange,
}: {
  size: string;
  storage: number | null;
  onChange: (storage: number | null) => void;
}) {
  const fallback = defaultStorageGb(
    size === 'shared'
      ? size
      : (SERVICE_SIZES.find(({ cpuMillis }) => String(cpuMillis) === size) ?? DEFAULT_SIZE),
  );
  return (
    <Card title="Storage" hint="for each server; a change needs no restart">
      <StorageInput
        aria-label="Storage in GB"
        value={storage ?? fallback}
        onChange={(gigabytes) => onChange(gigabytes === fallback ? null : gigabytes)}
        description={
          'Data, WAL, temporary files and logs. ' +
          'A service that uses more is read-only until data is dropped or the service is resized.'
        }
      />
    </Card>
  );
}
