/** The frame of a service's pages: what it is, how it is and why, and what can be done to it. */
import { ButtonLink } from '../../components/links.tsx';
import { Link, Outlet, useRouterState } from '@tanstack/react-router';
import { GitFork, Pause, Play, SearchX } from 'lucide-react';
import { useEffect, useRef } from 'react';
import { serviceCalls, type Operation, type Service as ServiceDocument } from '../../api.ts';
import {
  ActionButton,
  Card,
  CopyButton,
  Empty,
  Environment,
  ErrorNotice,
  Notice,
  Status,
  Waiting,
} from '../../components/ui.tsx';
import { useCall } from '../../components/use-call.tsx';
import { isGone, useOperations, useService, useServiceId } from '../../live.ts';
import { useMe } from '../../session.ts';
import { reasonOf, TYPE_NAMES, whyNot } from '../../status.ts';
import ui from '../../components/ui.module.css';
import classes from './service.module.css';

const TABS = [
  { to: '/services/$id', label: 'Overview' },
  { to: '/services/$id/operations', label: 'Operations' },
  { to: '/services/$id/metrics', label: 'Metrics' },
  { to: '/services/$id/logs', label: 'Logs' },
  { to: '/services/$id/backups', label: 'Backups' },
  { to: '/services/$id/availability', label: 'Availability' },
  { to: '/services/$id/pooler', label: 'Pooler' },
  { to: '/services/$id/network', label: 'Network' },
  { to: '/services/$id/settings', label: 'Settings' },
] as const;

export function Service() {
  const { data: service, error } = useService();
  const { data: operations } = useOperations();
  const id = useServiceId();
  const path = useRouterState({ select: ({ location }) => location.pathname });
  const tabs = useRef<HTMLElement>(null);
  const known = service !== undefined;
  // On a phone the tabs are wider than the window.
  useEffect(() => {
    tabs.current
      ?.querySelector('[data-status=active]')
      ?.scrollIntoView({ block: 'nearest', inline: 'center' });
  }, [path, known]);
  if (isGone(error)) return <Gone error={error} />;
  if (service === undefined)
    return error === null ? <Waiting rows={8} /> : <ErrorNotice error={error} />;
  return (
    <>
      <title>{`${service.name} · Howdah`}</title>
      <Head service={service} />
      <nav ref={tabs} className={classes.tabs} aria-label="Service">
        {TABS.map(({ to, label }) => (
          <Link
            key={label}
            to={to}
            params={{ id }}
            className={classes.tab}
            activeOptions={{ exact: label === 'Overview' }}
          >
            {label}
          </Link>
        ))}
      </nav>
      <Reasons service={service} operations={operations ?? []} />
      <Outlet />
    </>
  );
}

function Head({ service }: { service: ServiceDocument }) {
  const me = useMe();
  const { service_id: id, status } = service;
  const calls = serviceCalls(me.project.id, id);
  const start = useCall(calls.start);
  const stop = useCall(calls.stop);
  const paused = status === 'PAUSED' || status === 'RESUMING';
  return (
    <header className={ui.head}>
      <div>
        <div className={classes.title}>
          <h1>{service.name}</h1>
          <Status status={status} />
          <Environment service={service} />
        </div>
        <span className={classes.id}>
          <span className="mono">{id}</span>
          <CopyButton value={id} label="Copy the id" />· {TYPE_NAMES[service.service_type]} ·{' '}
          {service.region_code}
        </span>
      </div>
      <div className={classes.actions}>
        {paused ? (
          <ActionButton
            variant="default"
            leftSection={<Play size={16} />}
            loading={start.pending}
            why={whyNot('start', service, me)}
            onClick={() => start.run()}
          >
            Start
          </ActionButton>
        ) : (
          <ActionButton
            variant="default"
            leftSection={<Pause size={16} />}
            loading={stop.pending}
            why={whyNot('stop', service, me)}
            onClick={() => stop.run()}
          >
            Stop
          </ActionButton>
        )}
        <ButtonLink to="/services/$id/backups" params={{ id }} leftSection={<GitFork size={16} />}>
          Fork
        </ButtonLink>
      </div>
    </header>
  );
}

/** Why the status is what it is, and what will become trouble. */
function Reasons({
  service,
  operations,
}: {
  service: ServiceDocument;
  operations: readonly Operation[];
}) {
  const reason = service.status === 'UNSTABLE' ? reasonOf(service, operations) : null;
  if (reason === null && service.warnings === undefined) return null;
  return (
    <div className={`${classes.reason} ${classes.stack}`}>
      {reason !== null && (
        <Notice tone="bad">
          <p>{reason}</p>
        </Notice>
      )}
      {service.warnings?.map(({ code, message }) => (
        <Notice key={code} tone="warn">
          <p>{message}</p>
        </Notice>
      ))}
    </div>
  );
}

function Gone({ error }: { error: unknown }) {
  return (
    <Card>
      <Empty
        icon={SearchX}
        title="This service is gone"
        action={
          <div className={classes.actions}>
            <ButtonLink to="/services" variant="default">
              All services
            </ButtonLink>
            <ButtonLink to="/project/deleted">Deleted services</ButtonLink>
          </div>
        }
      >
        {error instanceof Error ? error.message : ''}. If it was deleted lately, it can be restored.
      </Empty>
    </Card>
  );
}
