/** The steps of an operation, while it runs and after it. */
import { Check, LoaderCircle, Minus, X } from 'lucide-react';
import type { Operation } from '../api.ts';
import { duration, roughly } from '../format.ts';
import { useRemainingSeconds } from '../live.ts';
import { Notice } from './ui.tsx';
import classes from './ui.module.css';

type Step = Operation['steps'][number];

/** Groups a step with its repetitions that had the same outcome. */
function withTries(steps: readonly Step[]): (Step & { tries: number })[] {
  const shown: (Step & { tries: number })[] = [];
  for (const step of steps) {
    const last = shown.at(-1);
    if (
      last !== undefined &&
      last.name === step.name &&
      last.outcome === step.outcome &&
      last.detail === step.detail
    )
      shown.splice(-1, 1, { ...step, tries: last.tries + 1 });
    else shown.push({ ...step, tries: 1 });
  }
  return shown;
}

/** @param shownAbove the error that the page shows already, which is not repeated here */
export function Steps({
  operation,
  shownAbove,
}: {
  operation: Operation;
  shownAbove?: string | undefined;
}) {
  const { steps, status, error } = operation;
  const remaining = useRemainingSeconds(operation);
  // Only to write the text once; which step failed is its outcome.
  const isError = ({ name, detail }: Step): boolean => error === `${name}: ${detail}`;
  const isShown = error === shownAbove || steps.some(isError);
  return (
    <ol className={classes.steps} aria-live={operation.finished === null ? 'polite' : 'off'}>
      {steps.length === 0 && status === 'queued' && (
        <li className={classes.step}>
          <LoaderCircle size={16} className={classes.spin} color="var(--busy)" aria-hidden />
          <span>waiting for its turn</span>
        </li>
      )}
      {withTries(steps).map((step, index) => (
        <li key={`${step.name} ${index}`} className={classes.step}>
          <Outcome of={step.outcome} />
          <span>
            {step.name}
            {step.tries > 1 && (
              <span className={classes.stepDetail}> · tried {step.tries} times</span>
            )}
            {step.detail !== null && !(isError(step) && error === shownAbove) && (
              <span className={classes.stepDetail}> · {step.detail}</span>
            )}
          </span>
          <span className={`${classes.stepTime} num`}>
            {duration(
              (step.outcome === 'running'
                ? Date.now()
                : Date.parse(step.finished ?? step.started)) - Date.parse(step.started),
            )}
          </span>
        </li>
      ))}
      {remaining !== undefined && remaining >= 1 && (
        <li className={classes.stepDetail}>about {roughly(remaining)} more</li>
      )}
      {error !== undefined && !isShown && (
        <li>
          <Notice tone={status === 'failed' ? 'bad' : 'warn'}>
            <p>{error}</p>
          </Notice>
        </li>
      )}
    </ol>
  );
}

function Outcome({ of: outcome }: { of: Step['outcome'] }) {
  switch (outcome) {
    case 'running':
      return (
        <LoaderCircle
          size={16}
          className={classes.spin}
          color="var(--busy)"
          aria-label="in progress"
        />
      );
    case 'ok':
      return <Check size={16} color="var(--good)" aria-label="done" />;
    case 'failed':
      return <X size={16} color="var(--bad)" aria-label="failed" />;
    case 'interrupted':
      return <Minus size={16} color="var(--muted)" aria-label="interrupted" />;
  }
}
