import { expect, test } from 'vitest';
import {
  exceeded,
  limitOf,
  logBudget,
  isWorthRelief,
  quotaFile,
  quotaStep,
  storageWarning,
  type QuotaFacts,
} from './quota-rules.ts';

const GB = 1e9;
const of = (facts: Partial<QuotaFacts>) =>
  quotaStep({
    usedBytes: GB,
    limitBytes: 10 * GB,
    frozen: false,
    beforeBytes: GB,
    leastBytes: GB,
    isReadOnly: false,
    ...facts,
  });

test('a service within its quota is left alone', () => {
  expect(of({})).toEqual({ isReadOnly: false, ends: 'nobody', stops: false });
  expect(of({ usedBytes: 10 * GB, beforeBytes: 9 * GB })).toEqual({
    isReadOnly: false,
    ends: 'nobody',
    stops: false,
  });
});

test('beyond its quota a service is read-only until below 95 %; writers end once', () => {
  expect(of({ usedBytes: 10.1 * GB, beforeBytes: 9 * GB })).toEqual({
    isReadOnly: true,
    ends: 'writers',
    stops: false,
  });
  expect(of({ usedBytes: 10.2 * GB, beforeBytes: 10.1 * GB, isReadOnly: true })).toEqual({
    isReadOnly: true,
    ends: 'nobody',
    stops: false,
  });
  expect(of({ usedBytes: 9.6 * GB, isReadOnly: true }).isReadOnly).toBe(true);
  expect(of({ usedBytes: 9.4 * GB, isReadOnly: true }).isReadOnly).toBe(false);
});

test('a service that grows on has its sessions ended, and is paused at a fifth beyond', () => {
  expect(of({ usedBytes: 11.1 * GB, beforeBytes: 11 * GB, isReadOnly: true })).toMatchObject({
    ends: 'all',
    stops: false,
  });
  expect(of({ usedBytes: 12.1 * GB, beforeBytes: 12 * GB, isReadOnly: true })).toMatchObject({
    ends: 'all',
    stops: true,
  });
});

test('on a full disk a service that grows is paused after some megabytes', () => {
  const full = { limitBytes: 7 * GB, frozen: true, isReadOnly: true, leastBytes: 6.9 * GB };
  expect(of({ ...full, usedBytes: 7.02 * GB, beforeBytes: 7 * GB })).toMatchObject({
    ends: 'all',
    stops: false,
  });
  expect(of({ ...full, usedBytes: 7.04 * GB, beforeBytes: 7.02 * GB })).toMatchObject({
    ends: 'all',
    stops: true,
  });
});

test('a service far beyond its quota goes on while it shrinks or is cleaned up', () => {
  expect(of({ usedBytes: 12.1 * GB, beforeBytes: 12.5 * GB, isReadOnly: true })).toMatchObject({
    ends: 'nobody',
    stops: false,
  });
  expect(
    of({ usedBytes: 12.1 * GB, beforeBytes: null, leastBytes: 12.1 * GB, isReadOnly: true }),
  ).toMatchObject({
    ends: 'nobody',
    stops: false,
  });
  const cleaning = { beforeBytes: 12.1 * GB, leastBytes: 12.1 * GB, isReadOnly: true };
  expect(of({ usedBytes: 12.3 * GB, ...cleaning }).stops).toBe(false);
  expect(of({ usedBytes: 12.7 * GB, ...cleaning }).stops).toBe(true);
});

test('archived WAL gives way near the quota, where there is enough of it', () => {
  expect(exceeded({ usedBytes: 9.1 * GB, archiveBytes: 2 * GB, quotaBytes: 10 * GB })).toBe(true);
  expect(exceeded({ usedBytes: 9.1 * GB, archiveBytes: 0.9 * GB, quotaBytes: 10 * GB })).toBe(
    false,
  );
  expect(exceeded({ usedBytes: 8.9 * GB, archiveBytes: 8 * GB, quotaBytes: 10 * GB })).toBe(false);
});

test('server logs take 20 to 200 MB, a fiftieth of the quota', () => {
  expect([GB, 5 * GB, 100 * GB].map(logBudget)).toEqual([20e6, 100e6, 200e6]);
});

test('settings are written only while there is something to hold', () => {
  expect(quotaFile({ isReadOnly: false, isQuiet: false })).toBe('');
  expect(quotaFile({ isReadOnly: true, isQuiet: false })).toContain(
    '\ndefault_transaction_read_only = on\n',
  );
  expect(quotaFile({ isReadOnly: false, isQuiet: true })).not.toContain('read_only');
});

test('a warning names what is used, the quota and the remedy', () => {
  const facts = {
    quotaBytes: 10 * GB,
    isReadOnly: false,
    frozen: false,
    isQuiet: false,
    stops: false,
    relief: null,
  };
  expect(storageWarning({ ...facts, usedBytes: 8.9 * GB })).toBeNull();
  expect(storageWarning({ ...facts, usedBytes: 9.5 * GB })?.message).toContain(
    '9.50 of 10.00 GB (storage_gb) are used; beyond that',
  );
  const over = storageWarning({ ...facts, usedBytes: 10.5 * GB, isReadOnly: true });
  expect(over?.code).toBe('STORAGE');
  for (const part of ['10.50 of 10.00 GB', 'read-only', '--storage-gb 14', 'drop data'])
    expect(over?.message).toContain(part);
  expect(
    storageWarning({ ...facts, usedBytes: GB, isReadOnly: true, frozen: true })?.message,
  ).toContain('the disk of the installation is full');
  const relief = { id: 'a', count: 1, lastMs: Date.now(), untilMs: Date.now() + 1000 };
  expect(storageWarning({ ...facts, usedBytes: GB, relief })?.message).toContain(
    `those from before the growth stay until ${new Date(relief.untilMs).toISOString()}`,
  );
  expect(storageWarning({ ...facts, usedBytes: GB, relief: { ...relief, untilMs: 0 } })).toBeNull();
});

test('a new snapshot is worth less archived WAL while points from before a growth stay', () => {
  expect(isWorthRelief(0.9 * GB, 10 * GB, false)).toBe(false);
  expect(isWorthRelief(0.9 * GB, 10 * GB, true)).toBe(true);
  expect(isWorthRelief(0.4 * GB, 10 * GB, true)).toBe(false);
});

test('on a full disk, servers may grow up to an equal share, and the others by 32 MB', () => {
  const full = { quotaBytes: 10 * GB, pressure: 'full' as const, sizes: [GB, 5 * GB] };
  expect(limitOf({ ...full, pressure: 'none', frozenBytes: null })).toBe(10 * GB);
  expect(limitOf({ ...full, frozenBytes: GB })).toBe(3 * GB);
  expect(limitOf({ ...full, frozenBytes: 5 * GB })).toBe(5.032 * GB);
  expect(limitOf({ ...full, frozenBytes: GB, quotaBytes: 2 * GB })).toBe(2 * GB);
  expect(limitOf({ ...full, frozenBytes: GB, pressure: 'scarce' })).toBe(1.032 * GB);
});
