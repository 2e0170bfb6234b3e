/** The small pieces that every page is made of. */
import { HowdahError, NoAnswerError } from '@howdah/client';
import {
  ActionIcon,
  Button,
  Skeleton,
  Tooltip,
  UnstyledButton,
  type ButtonProps,
} from '@mantine/core';
import { useClipboard } from '@mantine/hooks';
import {
  Check,
  CircleAlert,
  Copy,
  LoaderCircle,
  TriangleAlert,
  X,
  type LucideIcon,
} from 'lucide-react';
import { useId, type ReactNode } from 'react';
import type { Operation, Service } from '../api.ts';
import { ahead, duration, fullTime, ago, roughly } from '../format.ts';
import { useRemainingSeconds } from '../live.ts';
import { lookOf, type Tone } from '../status.ts';
import classes from './ui.module.css';

// ── frames ───────────────────────────────────────────────────────────────────────────────────────────────────────

export function Card({
  title,
  hint,
  children,
  flush = false,
}: {
  title?: string;
  hint?: ReactNode;
  children: ReactNode;
  flush?: boolean;
}) {
  const id = useId();
  return (
    <section className={classes.card} {...(title === undefined ? {} : { 'aria-labelledby': id })}>
      {title !== undefined && (
        <div className={classes.cardHead}>
          <h2 id={id} className={classes.cardTitle}>
            {title}
          </h2>
          {hint !== undefined && <span className={classes.cardHint}>{hint}</span>}
        </div>
      )}
      {flush ? children : <div className={classes.cardBody}>{children}</div>}
    </section>
  );
}

export function PageHead({
  title,
  about,
  children,
}: {
  title: ReactNode;
  about?: ReactNode;
  children?: ReactNode;
}) {
  return (
    <header className={classes.head}>
      <div>
        <h1>{title}</h1>
        {about !== undefined && <p>{about}</p>}
      </div>
      {children}
    </header>
  );
}

/** What stands where there is nothing yet: what it would be, and how to get the first. */
export function Empty({
  icon: Icon,
  title,
  children,
  action,
}: {
  icon: LucideIcon;
  title: string;
  children: ReactNode;
  action?: ReactNode;
}) {
  return (
    <div className={classes.empty}>
      <div className={classes.emptyIcon}>
        <Icon size={26} aria-hidden />
      </div>
      <h2>{title}</h2>
      <p>{children}</p>
      {action}
    </div>
  );
}

export function Facts({ rows }: { rows: readonly (readonly [string, ReactNode])[] }) {
  return (
    <dl className={classes.facts}>
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** The place of what is still being read, as large as that will be. */
export function Waiting({ rows = 3, height = 20 }: { rows?: number; height?: number }) {
  return (
    <div aria-busy="true" aria-label="Loading" role="status">
      {Array.from({ length: rows }, (_, row) => (
        <Skeleton
          key={row}
          height={height}
          mb={12}
          radius="sm"
          width={row === rows - 1 ? '70%' : '100%'}
        />
      ))}
    </div>
  );
}

// ── status ───────────────────────────────────────────────────────────────────────────────────────────────────────

export function Pill({ tone, children }: { tone: Tone | 'warn'; children: ReactNode }) {
  return (
    <span className={`${classes.status} ${classes[tone]}`}>
      <span className={classes.dot} aria-hidden />
      {children}
    </span>
  );
}

export function Status({ status }: { status: Service['status'] }) {
  const { tone, label } = lookOf(status);
  return <Pill tone={tone}>{label}</Pill>;
}

export function Environment({ service }: { service: Pick<Service, 'metadata'> }) {
  const { environment } = service.metadata;
  return (
    <span className={`${classes.tag} ${environment === 'PROD' ? classes.warn : classes.idle}`}>
      {environment}
    </span>
  );
}

// ── notices ──────────────────────────────────────────────────────────────────────────────────────────────────────

export function Notice({
  tone,
  children,
}: {
  tone: 'bad' | 'warn' | 'good' | 'busy';
  children: ReactNode;
}) {
  const Icon = tone === 'good' ? Check : tone === 'warn' ? TriangleAlert : CircleAlert;
  return (
    <div
      className={`${classes.notice} ${classes[tone]}`}
      role={tone === 'bad' ? 'alert' : 'status'}
    >
      <Icon size={17} aria-hidden />
      <div>{children}</div>
    </div>
  );
}

/** An error in the words of the API, with the request by which it is found in the log. */
export function ErrorText({ error }: { error: unknown }) {
  return (
    <>
      <p>{messageOf(error)}</p>
      {error instanceof HowdahError && error.requestId !== undefined && (
        <span className={classes.requestId}>
          {error.code} · request <code>{error.requestId}</code>
        </span>
      )}
    </>
  );
}

export function ErrorNotice({ error }: { error: unknown }) {
  return error === null || error === undefined ? null : (
    <Notice tone="bad">
      <ErrorText error={error} />
    </Notice>
  );
}

export function messageOf(error: unknown): string {
  if (error instanceof NoAnswerError)
    return 'The control plane does not answer. Whether it did this is not known yet; the databases go on.';
  return error instanceof Error ? error.message : String(error);
}

// ── copying ──────────────────────────────────────────────────────────────────────────────────────────────────────

export function CopyButton({ value, label }: { value: string; label: string }) {
  const { copied, copy } = useClipboard({ timeout: 1500 });
  return (
    <Tooltip label={copied ? 'Copied' : label}>
      <ActionIcon
        variant="subtle"
        color="gray"
        size={28}
        aria-label={copied ? 'Copied' : label}
        onClick={() => copy(value)}
      >
        {copied ? <Check size={15} color="var(--good)" /> : <Copy size={15} />}
      </ActionIcon>
    </Tooltip>
  );
}

/** A text that is to be copied. @param shown what stands there instead, when the text holds a secret */
export function Code({
  value,
  shown,
  label,
  wrap = false,
}: {
  value: string;
  shown?: string;
  label: string;
  wrap?: boolean;
}) {
  return (
    <div className={`${classes.code} ${wrap ? classes.wrap : ''}`}>
      <pre tabIndex={0} role="region" aria-label={label}>
        {shown ?? value}
      </pre>
      <CopyButton value={value} label={`Copy ${label}`} />
    </div>
  );
}

// ── actions ──────────────────────────────────────────────────────────────────────────────────────────────────────

/** A button that says why it cannot be used; it can be reached all the same, so that everybody can hear it. */
export function ActionButton({
  why,
  onClick,
  children,
  type = 'button',
  ...rest
}: ButtonProps & {
  why: string | null;
  type?: 'submit' | 'button';
  onClick?: () => void;
  children: ReactNode;
}) {
  const button = (
    <Button
      {...rest}
      type={type}
      {...(why === null ? {} : { 'aria-disabled': true, 'data-disabled': true })}
      onClick={why === null ? onClick : (event) => event.preventDefault()}
    >
      {children}
    </Button>
  );
  return why === null ? button : <Tooltip label={why}>{button}</Tooltip>;
}

export function LinkButton({ children, onClick }: { children: ReactNode; onClick: () => void }) {
  return (
    <UnstyledButton onClick={onClick} c="var(--mantine-color-anchor)" fz="sm">
      {children}
    </UnstyledButton>
  );
}

// ── time and steps ───────────────────────────────────────────────────────────────────────────────────────────────

export function Ago({ iso }: { iso: string }) {
  return (
    <time dateTime={iso} title={fullTime(iso)} className="num">
      {ago(iso)}
    </time>
  );
}

/** A moment to come, by how far away it is. */
export function Until({ iso }: { iso: string }) {
  return (
    <time dateTime={iso} title={fullTime(iso)} className="num">
      {ahead(iso)}
    </time>
  );
}

type Step = Operation['steps'][number];

/** Steps as they are shown: those that were tried again, with the same outcome, as one. */
function withTries(steps: readonly Step[]): (Step & { tries: number })[] {
  const shown: (Step & { tries: number })[] = [];
  for (const step of steps) {
    const last = shown.at(-1);
    if (last !== undefined && last.name === step.name && last.detail === step.detail)
      shown.splice(-1, 1, { ...step, tries: last.tries + 1 });
    else shown.push({ ...step, tries: 1 });
  }
  return shown;
}

/** The steps of an operation as they go. */
export function Steps({ operation }: { operation: Operation }) {
  const { steps, status, error } = operation;
  const remaining = useRemainingSeconds(operation);
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
          {error !== undefined && error === `${step.name}: ${step.detail}` ? (
            <X size={16} color="var(--bad)" aria-label="did not work" />
          ) : step.finished !== null ? (
            <Check size={16} color="var(--good)" aria-label="done" />
          ) : status === 'failed' ? (
            <X size={16} color="var(--bad)" aria-label="failed" />
          ) : (
            <LoaderCircle
              size={16}
              className={classes.spin}
              color="var(--busy)"
              aria-label="under way"
            />
          )}
          <span>
            {step.name}
            {step.tries > 1 && (
              <span className={classes.stepDetail}> · tried {step.tries} times</span>
            )}
            {step.detail !== null && <span className={classes.stepDetail}> · {step.detail}</span>}
          </span>
          <span className={`${classes.stepTime} num`}>
            {duration(
              (step.finished === null ? Date.now() : Date.parse(step.finished)) -
                Date.parse(step.started),
            )}
          </span>
        </li>
      ))}
      {remaining !== undefined && remaining >= 1 && (
        <li className={classes.stepDetail}>about {roughly(remaining)} more</li>
      )}
      {error !== undefined && (
        <li>
          <Notice tone={status === 'failed' ? 'bad' : 'warn'}>
            <p>{error}</p>
          </Notice>
        </li>
      )}
    </ol>
  );
}
