/** The frame of a service's pages: its name, status, problem and actions. */
import { Link, Outlet, useRouterState } from '@tanstack/react-router';
import { GitFork, Pause, Play, RotateCw, SearchX } from 'lucide-react';
import { useEffect, useRef } from 'react';
import {
  ButtonLink,
  ActionButton,
  Card,
  CopyButton,
  Empty,
  Environment,
  Notice,
  Status,
  Unread,
} from '../../components/ui.tsx';
import { serviceCalls, type Service as ServiceDocument } from '../../api.ts';
import { useCall } from '../../components/use-call.tsx';
import { isGone, useHasRegions, useProblem, useService, useServiceId } from '../../live.ts';
import { useMe } from '../../session.ts';
import { TYPE_NAMES, whyNot } from '../../status.ts';
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
  { to: '/services/$id/extensions', label: 'Extensions' },
  { to: '/services/$id/network', label: 'Network' },
  { to: '/services/$id/settings', label: 'Settings' },
] as const;

export function Service() {
  const { data: service, error } = useService();
  const id = useServiceId();
  const path = useRouterState({ select: ({ location }) => location.pathname });
  const tabs = useRef<HTMLElement>(null);
  const known = service !== undefined;
  // On a phone the tabs are wider than the window, and scroll.
  useEffect(() => {
    tabs.current
      ?.querySelector('[data-status=active]')
      ?.scrollIntoView({ block: 'nearest', inline: 'center' });
  }, [path, known]);
  if (isGone(error)) return <Gone error={error} />;
  if (service === undefined) return <Unread error={error} rows={8} />;
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
      <Problems service={service} />
      <Outlet />
    </>
  );
}

function Head({ service }: { service: ServiceDocument }) {
  const me = useMe();
  const { service_id: id, status } = service;
  const hasRegions = useHasRegions();
  const start = useCall(serviceCalls(me.project.id, service).start);
  const paused = status === 'PAUSED' || status === 'RESUMING';
  const whyNoFork = whyNot('forkPast', service, me);
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
          <CopyButton value={id} label="Copy the id" />· {TYPE_NAMES[service.service_type]}
          {hasRegions && ` · ${service.region_code}`}
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
          <>
            <Ending service={service} action="stop" />
            <Ending service={service} action="restart" />
          </>
        )}
        {whyNoFork === null ? (
          <ButtonLink
            to="/services/$id/backups"
            params={{ id }}
            leftSection={<GitFork size={16} />}
          >
            Fork
          </ButtonLink>
        ) : (
          <ActionButton leftSection={<GitFork size={16} />} why={whyNoFork}>
            Fork
          </ActionButton>
        )}
      </div>
    </header>
  );
}

/** The actions that end all sessions. */
const ENDINGS = {
  stop: { label: 'Stop', icon: <Pause size={16} /> },
  restart: { label: 'Restart', icon: <RotateCw size={16} /> },
} as const;

/** Stops or restarts. */
function Ending({ service, action }: { service: ServiceDocument; action: keyof typeof ENDINGS }) {
  const me = useMe();
  const { run, pending } = useCall<[], unknown>(serviceCalls(me.project.id, service)[action]);
  const { label, icon } = ENDINGS[action];
  return (
    <ActionButton
      variant="default"
      leftSection={icon}
      loading={pending}
      why={whyNot(action, service, me)}
      onClick={() => run()}
    >
      {label}
    </ActionButton>
  );
}

/** The problem of an UNSTABLE service with its remedy, and the warnings. */
function Problems({ service }: { service: ServiceDocument }) {
  const problem = useProblem();
  if (problem === null && service.warnings === undefined) return null;
  return (
    <div className={`${classes.reason} ${classes.stack}`}>
      {problem !== null && (
        <Notice tone="bad">
          <p>{problem.problem}</p>
          <p className={classes.hint}>{problem.remedy}</p>
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
        title="There is no such service"
        action={
          <div className={classes.actions}>
            <ButtonLink to="/services" variant="default">
              All services
            </ButtonLink>
            <ButtonLink to="/project/deleted">Deleted services</ButtonLink>
          </div>
        }
      >
        {error instanceof Error ? error.message : ''}. A deleted service can be restored for a
        while.
      </Empty>
    </Card>
  );
}
