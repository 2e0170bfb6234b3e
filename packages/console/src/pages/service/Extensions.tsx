/** The extensions of a service: what it has, what it can have, and why not the others. */
import { Puzzle } from 'lucide-react';
import { serviceCalls, type Operation, type ServiceExtension } from '../../api.ts';
import { Load } from '../../components/Load.tsx';
import { Rows } from '../../components/Rows.tsx';
import { Steps } from '../../components/Steps.tsx';
import { ActionButton, Card, Empty, Pill } from '../../components/ui.tsx';
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
        { title: null, show: (extension) => <Change extension={extension} /> },
      ]}
    />
  );
}

function State({ extension: { state, allowed, preload } }: { extension: ServiceExtension }) {
  if (state === 'enabled') return <Pill tone="good">enabled</Pill>;
  if (!allowed) return <Pill tone="warn">refused</Pill>;
  return <span className={classes.hint}>{preload ? 'available, restarts' : 'available'}</span>;
}

function Change({ extension }: { extension: ServiceExtension }) {
  const me = useMe();
  const service = useThisService();
  const calls = serviceCalls(me.project.id, service.service_id);
  const enable = useCall(calls.enableExtension);
  const { name, kind, state, allowed, statement, requires } = extension;
  // No call changes plugins and parts of every service.
  if (kind !== 'extension' || state === 'enabled' || !allowed) return null;
  const why = whyNot('enableExtension', service, me);
  const hint = [
    ...(requires.length === 0 ? [] : [`needs ${requires.join(', ')}`]),
    ...(statement === undefined ? [] : [`or as tsdbadmin: ${statement}`]),
  ].join('; ');
  return (
    <ActionButton
      variant="default"
      why={why}
      loading={enable.pending}
      onClick={() => enable.run(name)}
      aria-label={`Enable ${name}`}
      {...(hint === '' ? {} : { title: hint })}
    >
      Enable
    </ActionButton>
  );
}
