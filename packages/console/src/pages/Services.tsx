import { Button, NativeSelect, TextInput } from '@mantine/core';
import { partsOf } from '@howdah/contract/service-parts';
import type { Environment as EnvironmentTag, ServiceType } from '@howdah/contract/types';
import { Link } from '@tanstack/react-router';
import { CornerDownRight, Database, Plus, Search, SearchX, TriangleAlert } from 'lucide-react';
import { useMemo, useRef, useState } from 'react';
import {
  ButtonLink,
  ActionButton,
  Card,
  Empty,
  Environment,
  Notice,
  PageHead,
  Status,
  Unread,
  Until,
} from '../components/ui.tsx';
import type { Service } from '../api.ts';
import { cores } from '../format.ts';
import { useHasRegions, useProblems, useServiceNames, useServices } from '../live.ts';
import { useMe } from '../session.ts';
import { lookOf, TYPE_NAMES, whyReadOnly, type Tone } from '../status.ts';
import { ROW_PX, useRowsInSight } from '../rows.ts';
import { forkTree, type Placed } from '../tree.ts';
import classes from './services.module.css';

type Filter = {
  text: string;
  tone: Tone | null;
  type: ServiceType | null;
  environment: EnvironmentTag | null;
};
const EVERYTHING: Filter = { text: '', tone: null, type: null, environment: null };

export function Services() {
  const { data, error } = useServices();
  const [filter, setFilter] = useState(EVERYTHING);
  const empty = data?.length === 0;
  const placed = useMemo(() => (data === undefined ? [] : select(data, filter)), [data, filter]);
  return (
    <>
      <PageHead title="Services" about={data === undefined ? <>&nbsp;</> : summary(data)}>
        {!empty && <CreateButton />}
      </PageHead>
      <Problems services={data ?? []} />
      {!empty && <Filters filter={filter} onChange={setFilter} />}
      <Card flush>
        {data === undefined ? (
          <div style={{ padding: 20 }}>
            <Unread error={error} rows={5} height={36} />
          </div>
        ) : empty ? (
          <Empty
            icon={Database}
            title="Your first database is a second away"
            action={<CreateButton />}
          >
            A service is a PostgreSQL server of its own, with a port, a password and TLS. Fork it to
            try something on a copy, throw the copy away, and go back to any moment of the last
            days.
          </Empty>
        ) : placed.length === 0 ? (
          <Empty
            icon={SearchX}
            title="No service matches"
            action={
              <Button variant="default" onClick={() => setFilter(EVERYTHING)}>
                Show all {data.length}
              </Button>
            }
          >
            The search looks at names, ids and endpoints.
          </Empty>
        ) : (
          <List placed={placed} />
        )}
      </Card>
    </>
  );
}

/** The link to the form, for keys that may create services. */
function CreateButton() {
  const why = whyReadOnly(useMe());
  const icon = <Plus size={17} />;
  return why === null ? (
    <ButtonLink to="/create" leftSection={icon}>
      Create service
    </ButtonLink>
  ) : (
    <ActionButton leftSection={icon} why={why}>
      Create service
    </ActionButton>
  );
}

/** UNSTABLE services with problem and remedy, up to a limit. */
const PROBLEMS_SHOWN = 5;

function Problems({ services }: { services: readonly Service[] }) {
  const problems = useProblems(services);
  const more = problems.length - PROBLEMS_SHOWN;
  if (problems.length === 0) return null;
  return (
    <div className={classes.problems}>
      {problems.slice(0, PROBLEMS_SHOWN).map(({ service, problem: { problem, remedy } }) => (
        <Notice key={service.service_id} tone="bad">
          <p>
            <Link to="/services/$id" params={{ id: service.service_id }}>
              {service.name}
            </Link>{' '}
            is unstable: {problem}
          </p>
          <p className={classes.remedy}>{remedy}</p>
        </Notice>
      ))}
      {more > 0 && <p className={classes.remedy}>{more} more are unstable: filter by status.</p>}
    </div>
  );
}

function Filters({ filter, onChange }: { filter: Filter; onChange: (filter: Filter) => void }) {
  return (
    <div className={classes.filters}>
      <TextInput
        type="search"
        aria-label="Search services"
        placeholder="Search by name, id or port"
        leftSection={<Search size={16} aria-hidden />}
        value={filter.text}
        onChange={(event) => onChange({ ...filter, text: event.currentTarget.value })}
      />
      <Among
        label="Status"
        any="Any status"
        value={filter.tone}
        options={TONES}
        onChange={(tone) => onChange({ ...filter, tone })}
      />
      <Among
        label="Type"
        any="Any type"
        value={filter.type}
        options={TYPE_NAMES}
        onChange={(type) => onChange({ ...filter, type })}
      />
      <Among
        label="Environment"
        any="DEV and PROD"
        value={filter.environment}
        options={ENVIRONMENT_TAGS}
        onChange={(environment) => onChange({ ...filter, environment })}
      />
    </div>
  );
}

const TONES = { good: 'Ready', busy: 'In transition', bad: 'Unstable', idle: 'Paused' };
const ENVIRONMENT_TAGS: Record<EnvironmentTag, string> = { DEV: 'DEV', PROD: 'PROD' };

/** A choice of one value, or any. */
function Among<T extends string>({
  label,
  any,
  value,
  options,
  onChange,
}: {
  label: string;
  any: string;
  value: T | null;
  options: Record<T, string>;
  onChange: (value: T | null) => void;
}) {
  const isOption = (text: string): text is T => text in options;
  return (
    <NativeSelect
      aria-label={label}
      value={value ?? ''}
      onChange={({ currentTarget: { value: chosen } }) =>
        onChange(isOption(chosen) ? chosen : null)
      }
      data={[
        { value: '', label: any },
        ...Object.entries<string>(options).map(([option, text]) => ({
          value: option,
          label: text,
        })),
      ]}
    />
  );
}

/** Draws the rows in the window and a few beyond it, for any number of services. */
function List({ placed }: { placed: readonly Placed[] }) {
  const list = useRef<HTMLUListElement>(null);
  const { first, end } = useRowsInSight(list, placed.length);
  const names = useServiceNames();
  return (
    <div className={classes.columns}>
      <div className={classes.head} aria-hidden>
        <span>Name</span>
        <span>Status</span>
        <span>Size</span>
        <span className={classes.endpoint}>Endpoint</span>
        <span>Type</span>
      </div>
      <ul
        ref={list}
        className={classes.list}
        style={{ height: placed.length * ROW_PX }}
        aria-label="Services"
      >
        {placed.slice(first, end).map((place, offset) => (
          <li
            key={place.service.service_id}
            className={classes.item}
            style={{ transform: `translateY(${(first + offset) * ROW_PX}px)` }}
            aria-setsize={placed.length}
            aria-posinset={first + offset + 1}
          >
            <Row {...place} parentName={names.get(place.service.forked_from?.service_id ?? '')} />
          </li>
        ))}
      </ul>
    </div>
  );
}

function Row({ service, depth, parentName }: Placed & { parentName: string | undefined }) {
  const {
    service_id: id,
    name,
    service_type: type,
    status,
    resources,
    forked_from: parent,
    warnings,
    expires_at: end,
    suspended = false,
  } = service;
  const hasRegions = useHasRegions();
  const parts = partsOf(service).join(', ');
  const { cpu_millis: cpu, memory_gbs: memory } = resources[0]?.spec ?? {};
  // In a VPC the public endpoint accepts no connections.
  const { host, port } = service.vpc_endpoint ?? service.endpoint;
  return (
    <Link to="/services/$id" params={{ id }} className={classes.row}>
      <div className={classes.name} style={{ paddingLeft: Math.min(depth, 4) * 22 }}>
        {parent !== undefined && <CornerDownRight size={15} aria-label="fork" />}
        <div className={classes.text}>
          <div className={classes.title}>
            <span>{name}</span>
            <Environment service={service} />
            {warnings !== undefined && (
              <span title={warnings.map(({ message }) => message).join('\n')}>
                <TriangleAlert size={15} color="var(--warn)" aria-label="with a warning" />
              </span>
            )}
          </div>
          <div className={classes.sub}>
            <span className="mono">{id}</span>
            {hasRegions && ` · ${service.region_code}`}
            {parts !== '' && <span className={classes.inRow}> · {parts}</span>}
            {suspended && <span> · asleep</span>}
            {end !== undefined && (
              <span>
                {' · deleted '}
                <Until iso={end} />
              </span>
            )}
            {parent !== undefined && ` · fork of ${parentName ?? parent.service_id}`}
          </div>
        </div>
      </div>
      <div>
        <Status status={status} />
      </div>
      <div className={`${classes.wide} num`}>
        {cpu === undefined ? 'shared' : `${cores(cpu)} · ${memory} GB`}
      </div>
      <div className={`${classes.wide} ${classes.endpoint} ${classes.sub} mono`}>
        {host}:{port}
      </div>
      <div className={classes.wide}>
        <div className={classes.sub}>{TYPE_NAMES[type]}</div>
        <div className={classes.sub} title={parts}>
          {parts}
        </div>
      </div>
    </Link>
  );
}

/** The services that match the filter, as a tree; a search shows matches without their parents. */
function select(services: readonly Service[], { text, tone, type, environment }: Filter): Placed[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (service: Service): boolean => {
    const about = (
      `${service.name} ${service.service_id} ` +
      `${service.endpoint.host}:${service.endpoint.port} ${service.vpc_endpoint?.host ?? ''}`
    ).toLowerCase();
    return (
      words.every((word) => about.includes(word)) &&
      (tone === null || lookOf(service.status).tone === tone) &&
      (type === null || service.service_type === type) &&
      (environment === null || service.metadata.environment === environment)
    );
  };
  return forkTree(services.filter(fits));
}

function summary(services: readonly Service[]): string {
  const count = (tone: Tone): number =>
    services.filter(({ status }) => lookOf(status).tone === tone).length;
  const parts = [
    [count('good'), 'ready'],
    [count('busy'), 'in transition'],
    [count('bad'), 'unstable'],
    [count('idle'), 'paused'],
  ] as const;
  return parts.flatMap(([n, word]) => (n === 0 ? [] : [`${n} ${word}`])).join(', ') || 'none yet';
}
