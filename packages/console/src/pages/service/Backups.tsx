/** The window that backups reach, forks from a point in it, snapshots and their verification. */
import { FORK_STRATEGIES, type ForkStrategy } from '@howdah/contract/values';
import { Input, Button, Radio, TextInput, NativeSelect } from '@mantine/core';
import { useNavigate } from '@tanstack/react-router';
import { Check, CircleCheck, CircleX, Hourglass, X } from 'lucide-react';
import { useState } from 'react';
import { useQuery } from '@tanstack/react-query';
import { ALLOWED } from '@howdah/contract/actions';
import { notifications } from '@mantine/notifications';
import {
  rememberPassword,
  serviceCalls,
  type Backups as BackupsDocument,
  type Service,
  forkLossesQuery,
} from '../../api.ts';
import { Choice } from '../../components/Choice.tsx';
import { Form, NameInput } from '../../components/Form.tsx';
import { lifetimeOf, NO_LIFETIME, ServiceLifetimeInput } from '../../components/Lifetime.tsx';
import {
  Load,
  ActionButton,
  Ago,
  Card,
  Denied,
  Empty,
  Facts,
  Notice,
  ErrorNotice,
} from '../../components/ui.tsx';
import { StorageInput, whyNoStorage } from '../../components/Storage.tsx';
import { useCall } from '../../components/use-call.tsx';
import { bytes, days, fullTime } from '../../format.ts';
import {
  useBackups,
  useFindRegion,
  useIsOnKubernetes,
  useThisService,
  useWhyImpossible,
  useNewerVersions,
} from '../../live.ts';
import { useMe } from '../../session.ts';
import { whyDenied, whyNot, live } from '../../status.ts';
import create from '../create.module.css';
import { Certificate } from './Certificate.tsx';
import { OffMachine, PointsInTime } from './OffMachine.tsx';
import classes from './service.module.css';
import timeline from './timeline.module.css';
import { ConfirmName } from '../../components/ConfirmName.tsx';

export function Backups() {
  const service = useThisService();
  const denied = whyDenied('forkPast', service, useMe());
  return (
    <Load query={useBackups()}>
      {(backups) => (
        <div className={classes.stack}>
          {otherProblems(backups, service).map((problem) => (
            <Notice key={problem} tone="warn">
              <p>{problem}</p>
            </Notice>
          ))}
          {denied === null ? (
            <Fork service={service} backups={backups} />
          ) : (
            <Denied what="fork this service" why={denied} />
          )}
          <div className={classes.two}>
            <Snapshots backups={backups} />
            <VerificationCard service={service} backups={backups} />
          </div>
          <Certificate service={service} />
          <PointsInTime service={service} backups={backups} />
          <OffMachine service={service} backups={backups} />
          <Recover service={service} />
        </div>
      )}
    </Load>
  );
}

/** Problems of backups that are not among the service's warnings, which its frame shows. */
function otherProblems({ problem }: BackupsDocument, { warnings = [] }: Service): string[] {
  return (problem?.split('\n') ?? []).filter((line) =>
    warnings.every(({ message }) => message !== line),
  );
}

const isStrategy = (value: string): value is ForkStrategy =>
  FORK_STRATEGIES.some((strategy) => strategy === value);

function Fork({ service, backups }: { service: Service; backups: BackupsDocument }) {
  const me = useMe();
  const navigate = useNavigate();
  const findRegion = useFindRegion();
  const impossible = useWhyImpossible(service);
  const isOnKubernetes = useIsOnKubernetes(service);
  const { earliest, latest } = backups.window;
  const [strategy, setStrategy] = useState<ForkStrategy>('NOW');
  const [atMs, setAtMs] = useState<number | null>(null);
  const [name, setName] = useState('');
  const [version, setVersion] = useState('');
  const quota = service.resources[0]?.spec.storage_gb ?? 0;
  const [storage, setStorage] = useState(quota);
  const [lifetime, setLifetime] = useState(NO_LIFETIME);
  const window =
    earliest === null || latest === null
      ? null
      : { fromMs: Date.parse(earliest), toMs: Date.parse(latest) };
  const gaps = (backups.window.gaps ?? []).map(({ after, before, because }) => ({
    because,
    fromMs: Date.parse(after),
    toMs: Date.parse(before),
  }));
  const pointMs =
    window === null ? null : Math.min(Math.max(atMs ?? window.toMs, window.fromMs), window.toMs);
  const fork = useCall(
    () =>
      serviceCalls(me.project.id, service).fork({
        fork_strategy: strategy,
        ...(strategy === 'PITR' && pointMs !== null
          ? { target_time: new Date(pointMs).toISOString() }
          : {}),
        ...(name.trim() === '' ? {} : { name: name.trim() }),
        ...(storage === quota ? {} : { storage_gb: storage }),
        ...lifetimeOf(lifetime),
        ...(version === '' || strategy === 'PITR' ? {} : { pg_version: version }),
      }),
    {
      quiet: true,
      onDone: (made) => {
        rememberPassword(made);
        void navigate({ to: '/services/$id', params: { id: made.service_id } });
      },
    },
  );
  const gap =
    strategy === 'PITR' && pointMs !== null
      ? gaps.find(({ fromMs, toMs }) => pointMs > fromMs && pointMs < toMs)
      : undefined;
  const action = strategy === 'NOW' ? 'forkNow' : 'forkPast';
  const why =
    whyNot(action, service, me) ??
    impossible(action) ??
    (storage === quota ? null : whyNoStorage(storage)) ??
    (gap === undefined ? null : lostIn(gap));
  return (
    <Card title="Fork" hint={findRegion(service.region_code)?.fork_cost}>
      <Form
        call={fork}
        why={why}
        onSubmit={() => fork.run()}
        submit={
          strategy === 'PITR' && pointMs !== null
            ? `Fork of ${fullTime(new Date(pointMs).toISOString())}`
            : 'Fork'
        }
      >
        <Radio.Group
          aria-label="Which state"
          value={strategy}
          onChange={(value) => isStrategy(value) && setStrategy(value)}
        >
          <div className={create.types}>
            <Choice value="NOW" title="As it is now">
              Everything that is committed at this moment.
            </Choice>
            <Choice
              value="LAST_SNAPSHOT"
              title="From the last snapshot"
              why={
                isOnKubernetes && backups.snapshots.length === 0
                  ? 'Not yet: the first one is taken a minute or two after the service is ready.'
                  : null
              }
            >
              {backups.snapshots[0] === undefined ? (
                'Taken when the service was created.'
              ) : (
                <Ago iso={backups.snapshots[0].taken} />
              )}
            </Choice>
            <Choice
              value="PITR"
              title="As it was at a point in time"
              why={window === null ? 'Not yet: the first backup is being taken.' : null}
            >
              A time in the last {days(backups.window.days)}.
            </Choice>
          </div>
        </Radio.Group>
        {window !== null && pointMs !== null && (
          <Timeline
            window={window}
            gaps={gaps}
            pointMs={pointMs}
            onPick={(ms) => {
              setAtMs(ms);
              setStrategy('PITR');
            }}
            snapshots={backups.snapshots.map(({ taken }) => Date.parse(taken))}
          />
        )}
        <NameInput
          label="Name of the fork"
          placeholder={`${service.name}-fork`}
          value={name}
          onChange={setName}
          maw={420}
        />
        <StorageInput label="Storage in GB" value={storage} onChange={setStorage} />
        <Input.Wrapper label="Lifetime" labelElement="div" maw={420}>
          <ServiceLifetimeInput
            value={lifetime}
            otherwise="Not deleted by itself"
            onChange={setLifetime}
          />
        </Input.Wrapper>
        {strategy !== 'PITR' && (
          <ForkVersion service={service} version={version} onChange={setVersion} />
        )}
        {why === null && <ForkLosses service={service} strategy={strategy} version={version} />}
      </Form>
    </Card>
  );
}

type Span = { fromMs: number; toMs: number };
type Gap = Span & { because?: 'storage' | undefined };

const GAP_CAUSES = {
  missing: 'a WAL segment is missing from the archive',
  storage: 'archived WAL gave way, since it counts towards storage_gb',
} as const;

const lostIn = ({ fromMs, toMs, because }: Gap): string =>
  `Nothing between ${fullTime(new Date(fromMs).toISOString())} and ` +
  `${fullTime(new Date(toMs).toISOString())} can be restored: ${GAP_CAUSES[because ?? 'missing']}`;

/**
 * The window that backups reach, with snapshots and gaps. A point is chosen with the mouse, by
 * keyboard, or as text.
 */
function Timeline({
  window: { fromMs, toMs },
  gaps,
  pointMs,
  onPick,
  snapshots,
}: {
  window: Span;
  gaps: readonly Gap[];
  pointMs: number;
  onPick: (ms: number) => void;
  snapshots: readonly number[];
}) {
  const spanMs = Math.max(1, toMs - fromMs);
  const share = (ms: number): string => `${((ms - fromMs) / spanMs) * 100}%`;
  const point = new Date(pointMs).toISOString();
  return (
    <div>
      <div className={timeline.timeline}>
        <div className={timeline.track} />
        {gaps.map((gap) => (
          <div
            key={gap.fromMs}
            className={timeline.gap}
            style={{ left: share(gap.fromMs), right: `calc(100% - ${share(gap.toMs)})` }}
            title={lostIn(gap)}
          />
        ))}
        {snapshots
          .filter((ms) => ms >= fromMs && ms <= toMs)
          .map((ms) => (
            <div
              key={ms}
              className={timeline.mark}
              style={{ left: share(ms) }}
              title={`snapshot of ${fullTime(new Date(ms).toISOString())}`}
            />
          ))}
        <input
          type="range"
          className={timeline.range}
          aria-label="Point in time"
          aria-valuetext={fullTime(point)}
          min={fromMs}
          max={toMs}
          step={Math.max(1, Math.min(1000, Math.round(spanMs / 1000)))}
          value={pointMs}
          onChange={(event) => onPick(Number(event.currentTarget.value))}
        />
        <div className={`${timeline.ends} num`}>
          <span>{fullTime(new Date(fromMs).toISOString())}</span>
          <span>{fullTime(new Date(toMs).toISOString())}</span>
        </div>
      </div>
      {gaps.map((gap) => (
        <p key={gap.fromMs} className={classes.hint}>
          {lostIn(gap)}.
        </p>
      ))}
      <div className={classes.row} style={{ marginTop: 14, alignItems: 'flex-end' }}>
        <TextInput
          type="datetime-local"
          step="0.001"
          label="The moment, in your time zone"
          className="num"
          value={localMoment(pointMs)}
          min={localMoment(fromMs)}
          max={localMoment(toMs)}
          onChange={(event) => {
            const ms = Date.parse(event.currentTarget.value);
            if (!Number.isNaN(ms)) onPick(ms);
          }}
        />
        {[1, 10, 60].map((minutes) => (
          <Button
            key={minutes}
            variant="default"
            disabled={toMs - minutes * 60_000 < fromMs}
            title={toMs - minutes * 60_000 < fromMs ? 'earlier than backups reach' : undefined}
            onClick={() => onPick(toMs - minutes * 60_000)}
          >
            {minutes} min ago
          </Button>
        ))}
      </div>
    </div>
  );
}

/** A time as an input of the type `datetime-local` needs it. */
function localMoment(ms: number): string {
  const date = new Date(ms);
  return new Date(ms - date.getTimezoneOffset() * 60_000).toISOString().slice(0, -1);
}

function Snapshots({ backups }: { backups: BackupsDocument }) {
  return (
    <Card title="Snapshots" hint={`and ${bytes(backups.archive_mb * 1e6)} of WAL between them`}>
      {backups.snapshots.length === 0 ? (
        <Empty icon={Hourglass} title="No snapshots yet">
          The first is taken once the service is ready, the others on schedule while it changes.
        </Empty>
      ) : (
        <ul className={classes.plain}>
          {backups.snapshots.map(({ id, taken, kind, storage_mb: storage, verification }) => (
            <li key={id} className={`${classes.row} ${classes.between}`}>
              <span style={{ fontSize: 14 }} className="num">
                <Ago iso={taken} />
                <span className={classes.hint}> · {kind}</span>
              </span>
              <span className={classes.hint}>
                {verification === undefined
                  ? ''
                  : verification.succeeded
                    ? 'verified · '
                    : 'could not be verified · '}
                {storage === 0 ? '< 1 MB' : bytes(storage * 1e6)}
              </span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function VerificationCard({ service, backups }: { service: Service; backups: BackupsDocument }) {
  const me = useMe();
  const impossible = useWhyImpossible(service);
  const verify = useCall(serviceCalls(me.project.id, service).verifyBackup);
  const last = backups.last_verification;
  return (
    <Card title="Verification" hint={last === undefined ? undefined : <Ago iso={last.at} />}>
      {last === undefined ? (
        <p className={classes.hint}>
          Once a day the newest backup is restored beside the service, checked page by page and
          removed.
        </p>
      ) : (
        <div className={classes.stack} style={{ gap: 14 }}>
          <div className={classes.row}>
            {last.succeeded ? (
              <CircleCheck size={18} color="var(--good)" aria-hidden />
            ) : (
              <CircleX size={18} color="var(--bad)" aria-hidden />
            )}
            <strong style={{ fontWeight: 580 }}>
              {last.succeeded ? 'It can be restored' : (last.problem ?? 'It could not be restored')}
            </strong>
          </div>
          <Facts
            rows={[
              [
                'Restored within',
                last.recovery_seconds === null ? 'never' : `${last.recovery_seconds.toFixed(1)} s`,
              ],
              [
                'Last transaction',
                last.recovery_point === null ? 'unknown' : fullTime(last.recovery_point),
              ],
            ]}
          />
          <ul className={classes.plain}>
            {last.checks.map(({ name, succeeded, detail }) => (
              <li key={name} className={classes.check}>
                {succeeded ? (
                  <Check size={16} color="var(--good)" aria-label="passed" />
                ) : (
                  <X size={16} color="var(--bad)" aria-label="failed" />
                )}
                <span>
                  {name} <span className={classes.hint}>· {detail}</span>
                </span>
              </li>
            ))}
          </ul>
        </div>
      )}
      <ActionButton
        variant="default"
        mt="md"
        why={whyNot('verifyBackup', service, me) ?? impossible('verifyBackup')}
        loading={verify.pending}
        onClick={() => verify.run()}
      >
        Verify now
      </ActionButton>
    </Card>
  );
}

// The parts of its service that a fork would not have.

/** The list is asked for when it is opened. */
export function ForkLosses({
  service: { service_id: id },
  strategy,
  version,
}: {
  service: Service;
  strategy: ForkStrategy;
  version: string;
}) {
  const { project } = useMe();
  const [isOpen, setIsOpen] = useState(false);
  // A fork of a moment has the same as one of a snapshot.
  const request = {
    fork_strategy: strategy === 'PITR' ? ('LAST_SNAPSHOT' as const) : strategy,
    ...(version === '' || strategy === 'PITR' ? {} : { pg_version: version }),
  };
  const { data, error } = useQuery({
    ...forkLossesQuery(project.id, id, request),
    enabled: isOpen,
  });
  return (
    <details className={classes.hint} onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>What the fork does not have</summary>
      <ErrorNotice error={error} />
      <ul>
        {data?.map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
    </details>
  );
}

// The major version of PostgreSQL of a fork, where the region has newer ones than the parent's.

export function ForkVersion({
  service,
  version,
  onChange,
}: {
  service: Service;
  /** Empty: that of the parent. */
  version: string;
  onChange: (version: string) => void;
}) {
  const newer = useNewerVersions(service);
  if (newer.length === 0) return null;
  return (
    <NativeSelect
      label="PostgreSQL version"
      description="A newer one gets the data by a dump, which takes longer."
      value={version}
      onChange={(event) => onChange(event.currentTarget.value)}
      data={[
        { value: '', label: `${service.pg_version}, as this service` },
        ...newer.map(({ pg_version: major, version: full }) => ({
          value: major,
          label: full ?? major,
        })),
      ]}
      maw={420}
    />
  );
}

// Restores the data of a service from its backups, in its place.

/** Where the status of the service allows it. */
export function Recover({ service }: { service: Service }) {
  const me = useMe();
  const { name, status } = service;
  const isOnKubernetes = useIsOnKubernetes(service);
  if (ALLOWED[live(status)].recover !== 'accept') return null;
  return (
    <Card title="Lost or damaged data">
      <div className={classes.stack} style={{ gap: 14 }}>
        <p className={classes.hint}>
          {isOnKubernetes
            ? 'A service whose Cluster somebody has deleted comes back from the object store of ' +
              'its region, with all that is archived there. '
            : 'The newest backup comes back with the WAL after it, from its machine or from a ' +
              'repository. '}
          Id, endpoint and password stay.
        </p>
        <ConfirmName
          label="Recover…"
          title={`Recover ${name}`}
          submit="Recover the service"
          name={name}
          why={whyNot('recover', service, me)}
          call={() => serviceCalls(me.project.id, service).recover(name)}
          onDone={() =>
            notifications.show({ message: `${name} is being recovered`, color: 'teal' })
          }
        >
          {isOnKubernetes
            ? 'What is not archived is lost. '
            : 'Its present data is set aside for the time in which a deleted service can be ' +
              'restored. What neither the backups nor its WAL have is lost.'}
        </ConfirmName>
      </div>
    </Card>
  );
}
