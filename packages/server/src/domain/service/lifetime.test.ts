import type { Role } from '@howdah/contract';
import { describe, expect, test } from 'vitest';
import {
  changedLifetime,
  endOfLease,
  laterEnd,
  lifetimeOfNew,
  lifetimeOfRestored,
  lifetimeOfTag,
  WITHOUT_END,
  type KeyBounds,
} from './lifetime.ts';

const NOW = Date.parse('2027-01-31T12:00:00Z');
const HOUR_S = 3600;
const after = (seconds: number): Date => new Date(NOW + seconds * 1000);

const FREE: KeyBounds = {
  serviceTtlSeconds: null,
  maxTtlSeconds: null,
  autoSuspendSeconds: null,
  maxServices: null,
};
const keyWith = (bounds: Partial<KeyBounds> = {}) => ({
  publicKey: 'HDkey',
  role: 'developer' as Role,
  bounds: { ...FREE, ...bounds },
});
const BOUND = keyWith({ serviceTtlSeconds: HOUR_S, maxTtlSeconds: 2 * HOUR_S });
const serviceWith = (more: Partial<Parameters<typeof changedLifetime>[1]> = {}) => ({
  ...WITHOUT_END,
  environment: 'DEV' as const,
  read_replica_sets: [],
  created_by: 'HDother',
  ...more,
});

describe('the lifetime of a new service', () => {
  test('is what is asked for, else what its key has, else none', () => {
    const endOf = (key: ReturnType<typeof keyWith>, asked: Parameters<typeof lifetimeOfNew>[1]) =>
      lifetimeOfNew(key, asked, 'DEV', NOW).expires_at;
    expect(endOf(keyWith(), {})).toBeNull();
    expect(endOf(keyWith(), { ttl_seconds: 60 })).toEqual(after(60));
    expect(endOf(keyWith(), { expires_at: after(61).toISOString() })).toEqual(after(61));
    expect(endOf(BOUND, {})).toEqual(after(HOUR_S));
    expect(endOf(BOUND, { ttl_seconds: 2 * HOUR_S })).toEqual(after(2 * HOUR_S));
    expect(endOf(keyWith({ maxTtlSeconds: 90 }), {})).toEqual(after(90));
  });

  test('is announced an hour before its end, or after three quarters of it', () => {
    const warnedAt = (ttl_seconds: number) =>
      lifetimeOfNew(keyWith(), { ttl_seconds }, 'DEV', NOW).expiry_warning_at;
    expect(warnedAt(10 * HOUR_S)).toEqual(after(9 * HOUR_S));
    expect(warnedAt(4 * HOUR_S)).toEqual(after(3 * HOUR_S));
    expect(warnedAt(100)).toEqual(after(75));
  });

  test('never goes beyond the bound of its key, nor into the past, and is asked for once', () => {
    const refused = (asked: Parameters<typeof lifetimeOfNew>[1], key = BOUND) => {
      expect(() => lifetimeOfNew(key, asked, 'DEV', NOW)).toThrow(/ttl_seconds|expires_at/);
    };
    refused({ ttl_seconds: 2 * HOUR_S + 1 });
    refused({ expires_at: after(2 * HOUR_S + 1).toISOString() });
    refused({ expires_at: after(-1).toISOString() }, keyWith());
    refused({ expires_at: after(0).toISOString() }, keyWith());
    refused({ expires_at: 'soon' }, keyWith());
    refused({ ttl_seconds: 1, expires_at: after(1).toISOString() }, keyWith());
    refused({ purge_on_expiry: true }, keyWith());
  });

  test('has no end in PROD, and a key whose services must end makes none', () => {
    const inProd = (key: ReturnType<typeof keyWith>, ttl_seconds?: number) =>
      lifetimeOfNew(key, ttl_seconds === undefined ? {} : { ttl_seconds }, 'PROD', NOW);
    expect(inProd(keyWith({ serviceTtlSeconds: 60 }))).toEqual(WITHOUT_END);
    expect(() => inProd(keyWith(), 60)).toThrow(/PROD/);
    expect(() => inProd(BOUND)).toThrow(/max_service_ttl_seconds/);
    expect(() => inProd(BOUND, 60)).toThrow(/PROD/);
  });
});

test('a restored service gets the lifetime of a new one, and not its former end', () => {
  expect(lifetimeOfRestored(keyWith(), serviceWith())).toEqual(WITHOUT_END);
  expect(lifetimeOfRestored(BOUND, serviceWith()).expires_at).not.toBeNull();
});

test('the tag PROD takes the end away, and is refused to a key whose services must end', () => {
  expect(lifetimeOfTag(keyWith(), 'PROD')).toEqual(WITHOUT_END);
  expect(lifetimeOfTag(keyWith(), 'DEV')).toEqual({});
  expect(lifetimeOfTag(BOUND, 'DEV')).toEqual({});
  expect(() => lifetimeOfTag(BOUND, 'PROD')).toThrow(/max_service_ttl_seconds/);
});

describe('a change of a lifetime', () => {
  const change = (
    body: Parameters<typeof changedLifetime>[2],
    { key = keyWith(), service = serviceWith() } = {},
  ) => changedLifetime(key, service, body, NOW);

  test('sets an end from now on, takes it away, and keeps what is not named', () => {
    const ends = serviceWith({ expires_at: after(60), purge_on_expiry: true });
    expect(change({ ttl_seconds: 90 }, { service: ends })).toMatchObject({
      expires_at: after(90),
      purge_on_expiry: true,
    });
    expect(change({ expires_at: null }, { service: ends })).toEqual(WITHOUT_END);
    expect(change({ purge_on_expiry: false }, { service: ends })).toMatchObject({
      expires_at: after(60),
      purge_on_expiry: false,
    });
  });

  test('asks for something', () => {
    expect(() => change({})).toThrow(/neither/);
    expect(() => change({ purge_on_expiry: false })).toThrow(/neither/);
  });

  test('stays within the bound of the key', () => {
    expect(() => change({ expires_at: null }, { key: BOUND })).toThrow(/max_service_ttl_seconds/);
    expect(() => change({ ttl_seconds: 3 * HOUR_S }, { key: BOUND })).toThrow(/7200/);
    expect(change({ ttl_seconds: HOUR_S }, { key: BOUND }).expires_at).toEqual(after(HOUR_S));
  });

  test('never ends a PROD service', () => {
    const service = serviceWith({ environment: 'PROD' });
    expect(() => change({ ttl_seconds: 60 }, { service })).toThrow(/PROD/);
    expect(change({ expires_at: null }, { service })).toEqual(WITHOUT_END);
  });

  test('brings a purge forward only by an admin key, or by the key that made it', () => {
    const service = serviceWith({ expires_at: after(HOUR_S), purge_on_expiry: true });
    expect(() => change({ ttl_seconds: 1 }, { service })).toThrow(/admin/);
    expect(() => change({ purge_on_expiry: true }, { service })).not.toThrow();
    expect(change({ ttl_seconds: 2 * HOUR_S }, { service }).purge_on_expiry).toBe(true);
    expect(change({ ttl_seconds: 1, purge_on_expiry: false }, { service })).toMatchObject({
      expires_at: after(1),
      purge_on_expiry: false,
    });
    expect(change({ expires_at: null }, { service })).toEqual(WITHOUT_END);
    const own = { ...service, created_by: 'HDkey' };
    expect(change({ ttl_seconds: 1 }, { service: own }).expires_at).toEqual(after(1));
  });

  test('has data purged only by an admin key, or by the key that made it', () => {
    const body = { ttl_seconds: 60, purge_on_expiry: true };
    expect(() => change(body)).toThrow(/admin/);
    const own = serviceWith({ created_by: 'HDkey' });
    expect(change(body, { service: own }).purge_on_expiry).toBe(true);
    const admin = { ...keyWith(), role: 'admin' as Role };
    expect(change(body, { key: admin }).purge_on_expiry).toBe(true);
  });
});

describe('the end of a server that leases share', () => {
  test('is that of its last lease, and a server without one gets none', () => {
    expect(laterEnd(after(60), after(90))).toEqual(after(90));
    expect(laterEnd(after(60), after(60))).toBeNull();
    expect(laterEnd(after(60), after(30))).toBeNull();
    expect(laterEnd(null, after(60))).toBeNull();
  });

  test('stays within the bound of the key that extends one of them', () => {
    expect(endOfLease(BOUND, 2 * HOUR_S, NOW)).toEqual(after(2 * HOUR_S));
    expect(() => endOfLease(BOUND, 3 * HOUR_S, NOW)).toThrow(/7200/);
  });
});
