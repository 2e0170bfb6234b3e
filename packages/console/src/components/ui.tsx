/** The components that every page uses. */
import { messageOf } from '@howdah/contract/thrown';
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
import { Check, CircleAlert, Copy, Lock, TriangleAlert, type LucideIcon } from 'lucide-react';
import { useId, type ReactNode, type AnchorHTMLAttributes, type Ref } from 'react';
import { createLink } from '@tanstack/react-router';
import type { UseQueryResult } from '@tanstack/react-query';
import type { Service } from '../api.ts';
import { ago, ahead, fullTime } from '../format.ts';
import { isLoss } from '../reach.ts';
import { lookOf, type Tone } from '../status.ts';
import classes from './ui.module.css';

// ── frames ───────────────────────────────────────────────────────────────────────────────────────

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

/** Shown in place of an empty list: what it would hold, and how to get the first entry. */
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

/** A placeholder for content that is being read, of about its size. */
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

// ── status ───────────────────────────────────────────────────────────────────────────────────────

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

// ── notices ──────────────────────────────────────────────────────────────────────────────────────

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

/** An error in the words of the API, with the id that finds its request in the control log. */
export function ErrorText({ error }: { error: unknown }) {
  return (
    <>
      <p>{explain(error)}</p>
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

/**
 * A placeholder while content is read, or why it could not be. A lost control plane is reported
 * once, by the shell.
 */
export function Unread({
  error,
  rows,
  height,
}: {
  error: unknown;
  rows?: number;
  height?: number;
}) {
  return error === null || isLoss(error) ? (
    <Waiting
      {...(rows === undefined ? {} : { rows })}
      {...(height === undefined ? {} : { height })}
    />
  ) : (
    <ErrorNotice error={error} />
  );
}

/** Shown in place of a form to a key that may not send it. */
export function Denied({ what, why }: { what: string; why: string }) {
  return (
    <div className={`${classes.notice} ${classes.idle}`} role="note">
      <Lock size={17} aria-hidden />
      <div>
        <p>
          You cannot {what}: {why}.
        </p>
      </div>
    </div>
  );
}

function explain(error: unknown): string {
  if (error instanceof NoAnswerError)
    return (
      'The control plane does not answer, so it is not known whether it made this change. ' +
      'The databases keep running.'
    );
  return messageOf(error);
}

// ── copying ──────────────────────────────────────────────────────────────────────────────────────

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

/** A text to copy. @param shown in place of the text, if that holds a secret */
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

// ── actions ──────────────────────────────────────────────────────────────────────────────────────

/**
 * A button that says why it is disabled. It keeps the focus, so that screen readers read the reason
 * too.
 */
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

// ── time ─────────────────────────────────────────────────────────────────────────────────────────

/** A time in the past, relative to now. */
export function Ago({ iso }: { iso: string }) {
  return (
    <time dateTime={iso} title={fullTime(iso)} className="num">
      {ago(iso)}
    </time>
  );
}

/** A time in the future, relative to now. */
export function Until({ iso }: { iso: string }) {
  return (
    <time dateTime={iso} title={fullTime(iso)} className="num">
      {ahead(iso)}
    </time>
  );
}

type AnchorProps = ButtonProps &
  Omit<AnchorHTMLAttributes<HTMLAnchorElement>, keyof ButtonProps> & {
    ref?: Ref<HTMLAnchorElement>;
  };

const AnchorButton = (props: AnchorProps) => <Button component="a" {...props} />;

/** A link with the appearance of a button. */
export const ButtonLink = createLink(AnchorButton);

/** The content that a query has read, a placeholder, or why it could not be read. */
export function Load<T>({
  query: { data, error },
  children,
}: {
  query: UseQueryResult<T>;
  children: (data: T) => ReactNode;
}) {
  if (data !== undefined) return children(data);
  return (
    <Card>
      <Unread error={error} rows={5} />
    </Card>
  );
}
