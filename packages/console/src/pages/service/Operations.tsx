import { CANCEL } from '@howdah/contract/status';
import { History } from 'lucide-react';
import { cancelOperation, type Operation } from '../../api.ts';
import { Load, ActionButton, Ago, Card, Empty, Pill, Waiting } from '../../components/ui.tsx';
import { Steps } from '../../components/Steps.tsx';
import { KeyName } from '../../components/names.tsx';
import { useCall } from '../../components/use-call.tsx';
import { duration } from '../../format.ts';
import { useAreNamesRead, useOperations, useProblem, useThisService } from '../../live.ts';
import { useMe } from '../../session.ts';
import { kindLabel, whyReadOnly, type Tone } from '../../status.ts';
import classes from './service.module.css';

const TONE: Record<Operation['status'], Tone> = {
  queued: 'busy',
  running: 'busy',
  succeeded: 'good',
  failed: 'bad',
};

export function Operations() {
  const areNamesRead = useAreNamesRead();
  return (
    <Load query={useOperations()}>
      {(operations) => (
        <Card flush>
          {!areNamesRead ? (
            <div style={{ padding: 20 }}>
              <Waiting rows={6} />
            </div>
          ) : operations.length === 0 ? (
            <Empty icon={History} title="No operations yet">
              Each change is an operation, with its steps and their durations.
            </Empty>
          ) : (
            operations.map((operation) => <One key={operation.id} operation={operation} />)
          )}
        </Card>
      )}
    </Load>
  );
}

/** The duration from the first step, which may precede the operation: a failover acts first. */
function tookMs({ created, finished, steps }: Operation): number | null {
  if (finished === null) return null;
  const begun = Math.min(
    ...[created, ...steps.map(({ started }) => started)].map((iso) => Date.parse(iso)),
  );
  return Date.parse(finished) - begun;
}

function Cancel({ operation: { id } }: { operation: Operation }) {
  const me = useMe();
  const { run, pending } = useCall(() => cancelOperation(me.project.id, id));
  return (
    <ActionButton
      variant="subtle"
      size="xs"
      why={whyReadOnly(me, useThisService().created_by)}
      loading={pending}
      onClick={() => run()}
    >
      Cancel
    </ActionButton>
  );
}

function One({ operation }: { operation: Operation }) {
  const { kind, status, created, requested_by: by, id } = operation;
  const took = tookMs(operation);
  return (
    <article className={classes.operation} aria-label={`${kindLabel(kind)} ${status}`}>
      <div className={classes.operationHead}>
        <div className={classes.row}>
          <strong>{kindLabel(kind)}</strong>
          <Pill tone={TONE[status]}>{status}</Pill>
          <span className={`${classes.hint} num`}>{took === null ? '' : duration(took)}</span>
          {took === null && CANCEL[kind] === 'always' && <Cancel operation={operation} />}
        </div>
        <span className={classes.hint}>
          <Ago iso={created} /> by {by === 'howdah' ? 'Howdah' : <KeyName publicKey={by} />} ·{' '}
          <span className="mono">{id}</span>
        </span>
      </div>
      <Steps operation={operation} shownAbove={useProblem()?.problem} />
      <NotCarried operation={operation} />
    </article>
  );
}

/** The parts of its service that the result of an operation does not have. */
function NotCarried({ operation: { not_carried: left = [] } }: { operation: Operation }) {
  if (left.length === 0) return null;
  return (
    <details className={classes.hint}>
      <summary>Not carried over: {left.length}</summary>
      <ul>
        {left.map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
    </details>
  );
}
