/** The extensions of a service: what it has, what it can have, and why not the others. */
import { Puzzle } from 'lucide-react';
import { serviceCalls, type Operation, type ServiceExtension } from '../../api.ts';
import { Confirm } from '../../components/Confirm.tsx';
import { Load, ActionButton, Card, Empty, Pill } from '../../components/ui.tsx';
import { Rows } from '../../components/Rows.tsx';
import { Steps } from '../../components/Steps.tsx';
import { useCall } from '../../components/use-call.tsx';
import { useExtensions, useOperations, useProblem, useThisService } from '../../live.ts';
import { useMe } from '../../session.ts';
import { whyNot } from '../../status.ts';
import classes from './service.module.css';

export function Extensions() {
  const { data: operations = [] } = useOperations();
  const last = operations.find(isChange);
  const isShown = last !== undefined && (last.finished === null || last.status === 'failed');
  const problem = useProblem();
  return (
    <Load query={useExtensions()}>
      {(extensions) => (
        <div className={classes.stack}>
          {isShown && (
            <Card title="Last change">
              <Steps operation={last} shownAbove={problem?.problem} />
            </Card>
          )}
          <Card title="Extensions" hint="of the PostgreSQL that this service runs on" flush>
            <List extensions={extensions} />
          </Card>
        </div>
      )}
    </Load>
  );
}

const isChange = ({ kind }: Operation): boolean =>
  kind === 'enableExtension' || kind === 'disableExtension';

/** Enabled ones first, then those that can be, then the refused ones. */
const orderOf = ({ state, allowed }: ServiceExtension): number =>
  state === 'enabled' ? 0 : allowed ? 1 : 2;

function List({ extensions }: { extensions: readonly ServiceExtension[] }) {
  if (extensions.length === 0)
    return (
      <Empty icon={Puzzle} title="No extensions">
        The PostgreSQL of this service has none.
      </Empty>
    );
  return (
    <Rows
      rows={extensions.toSorted((a, b) => orderOf(a) - orderOf(b))}
      idOf={({ name }) => name}
      columns={[
        {
          title: 'Extension',
          show: ({ name, version, default_version: newest }) => (
            <>
              <strong className="mono">{name}</strong>{' '}
              <span className={classes.hint}>{version ?? newest}</span>
            </>
          ),
        },
        { title: 'State', show: (extension) => <State extension={extension} /> },
        {
          title: 'What it is',
          show: ({ comment, reason, allowed }) => (
            <>
              {comment}
              <p className={classes.hint}>{allowed ? reason : `Refused: ${reason}`}</p>
            </>
          ),
        },
        { title: null, show: (extension) => <Change extension={extension} all={extensions} /> },
      ]}
    />
  );
}

function State({ extension: { state, allowed, preload } }: { extension: ServiceExtension }) {
  if (state === 'enabled') return <Pill tone="good">enabled</Pill>;
  if (!allowed) return <Pill tone="warn">refused</Pill>;
  return <span className={classes.hint}>{preload ? 'available, restarts' : 'available'}</span>;
}

type Changing = { extension: ServiceExtension; all: readonly ServiceExtension[] };

function Change(props: Changing) {
  const { kind, state, allowed } = props.extension;
  // No call changes plugins.
  if (kind !== 'extension') return null;
  if (state === 'enabled') return <Disable {...props} />;
  return allowed ? <Enable extension={props.extension} /> : null;
}

function Enable({ extension }: { extension: ServiceExtension }) {
  const me = useMe();
  const service = useThisService();
  const enable = useCall(serviceCalls(me.project.id, service).enableExtension);
  const { name, statement, requires } = extension;
  const hint = [
    ...(requires.length === 0 ? [] : [`needs ${requires.join(', ')}`]),
    ...(statement === undefined ? [] : [`or as tsdbadmin: ${statement}`]),
  ].join('; ');
  return (
    <ActionButton
      variant="default"
      size="xs"
      why={whyNot('enableExtension', service, me)}
      loading={enable.pending}
      onClick={() => enable.run(name)}
      aria-label={`Enable ${name}`}
      {...(hint === '' ? {} : { title: hint })}
    >
      Enable
    </ActionButton>
  );
}

function Disable({ extension: { name, preload, kept }, all }: Changing) {
  const me = useMe();
  const service = useThisService();
  const disable = useCall(serviceCalls(me.project.id, service).disableExtension);
  const needing = all.filter(
    ({ state, requires }) => state === 'enabled' && requires.includes(name),
  );
  const why =
    kept ??
    (needing.length === 0
      ? whyNot('disableExtension', service, me)
      : `${needing.map((other) => other.name).join(', ')} needs it: disable that first`);
  return (
    <Confirm
      label="Disable"
      title={`Disable ${name}`}
      aria-label={`Disable ${name}`}
      why={why}
      pending={disable.pending}
      onConfirm={() => disable.run(name)}
    >
      It is dropped from the database. This fails while tables or functions use it.
      {preload && ' The service restarts: its sessions end.'}
    </Confirm>
  );
}
