/**
 * When services are deleted by themselves, within the bounds of the keys that make them. A PROD
 * service never expires.
 */
import {
  ApiError,
  type Environment,
  type ForkBody,
  type Role,
  type SetExpiryBody,
} from '@howdah/contract';
import type { ServiceRow } from './row.ts';
import { protectionOfRow } from './spec.ts';

const HOUR_MS = 3_600_000;
/** The longest time until the end of a service, as `ttl_seconds` has it: ten years. */
const MAX_LIFETIME_MS = 315_360_000_000;
/** The event comes an hour before the end, or after three quarters of a shorter lifetime. */
const WARNED_PART = 1 / 4;

/** The bounds of the services that a key makes; null: none. */
export type KeyBounds = Readonly<{
  /** The lifetime of a service that is made without one. */
  serviceTtlSeconds: number | null;
  /** The longest lifetime. */
  maxTtlSeconds: number | null;
  /** The time after which a service falls asleep that is made without one. */
  autoSuspendSeconds: number | null;
  /** How many services that it made are there at a time. */
  maxServices: number | null;
}>;

/** A key that sets a lifetime. */
type Setter = Readonly<{ publicKey: string; role: Role; bounds: KeyBounds }>;

type Asked = Pick<ForkBody, 'ttl_seconds' | 'purge_on_expiry'> & {
  expires_at?: string | null | undefined;
};
type Lifetime = Pick<ServiceRow, 'expires_at' | 'purge_on_expiry' | 'expiry_warning_at'>;
/** A service, which its tag protects, or those of its read replica sets. */
type Tagged = Pick<ServiceRow, 'environment' | 'read_replica_sets'>;

type Made = Pick<ServiceRow, 'created_by'>;

/** The lifetime of a service that does not expire. */
export const WITHOUT_END: Lifetime = {
  expires_at: null,
  purge_on_expiry: false,
  expiry_warning_at: null,
};

/**
 * The lifetime of a new service.
 *
 * @param environment its tag
 * @throws ApiError INVALID_REQUEST, FORBIDDEN beyond the bounds of the key
 */
export function lifetimeOfNew(
  { bounds }: Pick<Setter, 'bounds'>,
  asked: Asked,
  environment: Environment,
  nowMs: number = Date.now(),
): Lifetime {
  const asks = asked.ttl_seconds !== undefined || asked.expires_at != null;
  const isProd = environment === 'PROD';
  if (isProd && asks) throw prodExpires();
  if (isProd) refuseBound(bounds);
  const fallback = asks ? null : (bounds.serviceTtlSeconds ?? bounds.maxTtlSeconds);
  const wanted = fallback === null ? asked : { ...asked, ttl_seconds: fallback };
  const end = isProd ? null : endOrRefuse(bounds, wanted, nowMs);
  if (end === null && asked.purge_on_expiry === true)
    throw new ApiError(
      'INVALID_REQUEST',
      'purge_on_expiry: found true, for a service that does not expire; send ttl_seconds too',
    );
  return lifetimeUntil(end, asked.purge_on_expiry ?? false, nowMs);
}

/** The moment that a request asks for; null: none. */
function endOrRefuse(bounds: KeyBounds, asked: Asked, nowMs: number): number | null {
  const { ttl_seconds: ttl, expires_at: at } = asked;
  if (ttl !== undefined && at !== undefined)
    throw new ApiError('INVALID_REQUEST', 'ttl_seconds, expires_at: found both; send one of them');
  const end = ttl === undefined ? momentOrRefuse(at ?? null, nowMs) : nowMs + ttl * 1000;
  const { maxTtlSeconds: most } = bounds;
  if (most === null || (end !== null && end <= nowMs + most * 1000)) return end;
  const found =
    ttl === undefined ? `expires_at: found ${at ?? 'none'}` : `ttl_seconds: found ${ttl}`;
  throw new ApiError(
    'FORBIDDEN',
    `${found}; services of this key end within ${most} seconds: ask for no more, or use a key ` +
      'without max_service_ttl_seconds',
  );
}

function momentOrRefuse(text: string | null, nowMs: number): number | null {
  if (text === null) return null;
  const ms = Date.parse(text);
  if (ms > nowMs && ms <= nowMs + MAX_LIFETIME_MS) return ms;
  throw new ApiError(
    'INVALID_REQUEST',
    `expires_at: found ${text}; allowed: a moment in the future, within ten years`,
  );
}

const lifetimeUntil = (end: number | null, purges: boolean, nowMs: number): Lifetime =>
  end === null
    ? WITHOUT_END
    : {
        expires_at: new Date(end),
        purge_on_expiry: purges,
        expiry_warning_at: new Date(end - Math.min(HOUR_MS, (end - nowMs) * WARNED_PART)),
      };

const prodExpires = (): ApiError =>
  new ApiError(
    'INVALID_REQUEST',
    'ttl_seconds, expires_at: a PROD service does not expire, nor one with a PROD read replica ' +
      'set; leave them out, or make it DEV',
  );

/** The lifetime of a service that comes back after it was deleted. */
export function lifetimeOfRestored(key: Pick<Setter, 'bounds'>, service: Tagged): Lifetime {
  return lifetimeOfNew(key, {}, protectionOfRow(service));
}

/**
 * The change of a lifetime by a new tag: a PROD service does not expire.
 *
 * @throws ApiError FORBIDDEN for a key whose services must
 */
export function lifetimeOfTag(
  { bounds }: Pick<Setter, 'bounds'>,
  environment: Environment,
): Partial<Lifetime> {
  if (environment !== 'PROD') return {};
  refuseBound(bounds);
  return WITHOUT_END;
}

/** Refuses the tag PROD to a key whose services must end. */
function refuseBound({ maxTtlSeconds: most }: KeyBounds): void {
  if (most === null) return;
  throw new ApiError(
    'FORBIDDEN',
    `environment: found PROD, which does not expire, and services of this key end within ${most} ` +
      'seconds: use DEV, or a key without max_service_ttl_seconds',
  );
}

/** The lifetime of a service after a request to set it. @throws ApiError */
export function changedLifetime(
  key: Setter,
  service: Lifetime & Tagged & Made,
  body: SetExpiryBody,
  nowMs: number,
): Lifetime {
  const { ttl_seconds: ttl, expires_at: at, purge_on_expiry: asked } = body;
  const purges = asked ?? service.purge_on_expiry;
  if (ttl === undefined && at === undefined) {
    if (asked === undefined || service.expires_at === null)
      throw new ApiError(
        'INVALID_REQUEST',
        'ttl_seconds, expires_at: found neither; send one of them, or expires_at null for a ' +
          'service that does not expire',
      );
    const { expires_at, expiry_warning_at } = service;
    if (purges) refusePurge(key, service, expires_at.getTime());
    return { expires_at, expiry_warning_at, purge_on_expiry: purges };
  }
  const end = endOrRefuse(key.bounds, body, nowMs);
  if (end !== null && protectionOfRow(service) === 'PROD') throw prodExpires();
  if (end !== null && purges) refusePurge(key, service, end);
  return lifetimeUntil(end, purges, nowMs);
}

/**
 * The end of a server that leases share when one of them gets another end. The others may end
 * later, and no lease gives an end to a server that has none.
 *
 * @param end of the lease
 * @returns null: it stays as it is
 */
export const laterEnd = (before: Date | null, end: Date): Date | null =>
  before !== null && end > before ? end : null;

/** The end of a lease that is extended. @throws ApiError FORBIDDEN beyond the bounds of the key */
export function endOfLease(
  { bounds }: Pick<Setter, 'bounds'>,
  ttlSeconds: number,
  nowMs: number,
): Date {
  endOrRefuse(bounds, { ttl_seconds: ttlSeconds }, nowMs);
  return new Date(nowMs + ttlSeconds * 1000);
}

/**
 * Refuses an end with a purge to a key that may only delete what can be restored: one that did not
 * make the service. A later end of what is purged anyway takes nothing away.
 */
function refusePurge(
  { publicKey, role }: Setter,
  { created_by: maker, expires_at: before, purge_on_expiry: isPurged }: Lifetime & Made,
  end: number,
): void {
  const isNoWorse = isPurged && before !== null && end >= before.getTime();
  if (isNoWorse || role === 'admin' || maker === publicKey) return;
  throw new ApiError(
    'FORBIDDEN',
    'purge_on_expiry: true for a service that another key made; send purge_on_expiry false, or ' +
      'use an admin key',
  );
}
