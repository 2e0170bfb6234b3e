import { ALERT_RULE_NAMES, type AlertRuleName, type QuietHours } from '@howdah/contract';
import { expect, test } from 'vitest';
import {
  conditionsOf,
  ruleOf,
  type Condition,
  type Facts,
  type RuleOf,
  type ServiceFacts,
} from './conditions.ts';
import { incidentChanges, STEADY_MS, type StoredIncident } from './incidents.ts';
import {
  pagerDutyEvents,
  slackBody,
  summaryOf,
  teamsBody,
  textOf,
  titleOf,
  type AlertMessage,
} from './messages.ts';
import { isQuiet, isTimeZone } from './quiet-hours.ts';

const NOW = new Date('2026-03-01T12:00:00Z');
const before = (minutes: number): Date => new Date(NOW.getTime() - minutes * 60_000);
const after = (days: number): Date => new Date(NOW.getTime() + days * 86_400_000);

const SERVICE: ServiceFacts = {
  id: 'linltu4hxx',
  project_id: 'n765kku04j',
  name: 'orders',
  status: 'READY',
  warnings: [],
  memory_gbs: null,
  storage_gb: 10,
  storage_mb: 8400,
  connections: 79,
  lag_seconds: 59,
  failed_over: before(15),
  backup_due: before(60 * 23),
};

const FACTS: Facts = {
  now: NOW,
  services: [],
  keys: [],
  operatorProject: 'operator00',
  regions: [],
  certificateExpires: null,
};

const DEFAULT: RuleOf = (_, rule) => ruleOf(rule, null);

const rulesOf = (facts: Partial<Facts>, ruleIn: RuleOf = DEFAULT): AlertRuleName[] =>
  conditionsOf({ ...FACTS, ...facts }, ruleIn).map(({ rule }) => rule);
const rulesOfService = (change: Partial<ServiceFacts>, facts: Partial<Facts> = {}) =>
  rulesOf({ ...facts, services: [{ ...SERVICE, ...change }] });

test('a service within every threshold has no condition', () => {
  expect(rulesOfService({})).toEqual([]);
});

test.for<[string, Partial<ServiceFacts>, AlertRuleName[]]>([
  ['UNSTABLE', { status: 'UNSTABLE' }, ['unstable']],
  ['a failover 14 minutes ago', { failed_over: before(14) }, ['failover']],
  ['85 % of its quota', { storage_mb: 8500 }, ['disk']],
  ['95 % of its quota', { storage_mb: 9500 }, ['disk', 'disk_full']],
  ['80 of 100 connections', { connections: 80 }, ['connections']],
  ['a lag of a minute', { lag_seconds: 60 }, ['lag']],
  ['a backup that is due for a day', { backup_due: before(60 * 24) }, ['backup']],
  ['no backup that is due', { backup_due: null }, []],
  ['nothing measured', { storage_mb: null, connections: null, lag_seconds: null }, []],
])('a service with %s', ([, change, rules]) => {
  expect(rulesOfService(change)).toEqual(rules);
});

test.for([
  ['STORAGE', 'disk'],
  ['SNAPSHOT', 'backup'],
  ['REPOSITORY', 'backup'],
  ['REPLICA_MISSING', 'replica_missing'],
  ['ARCHIVE', 'archive'],
  ['VERIFICATION', 'verification'],
  ['MEMORY', 'memory'],
  ['REGION_AWAY', 'region_away'],
] as const)('the warning %s is the condition of the rule %s', ([code, rule]) => {
  const [only, ...others] = conditionsOf(
    { ...FACTS, services: [{ ...SERVICE, warnings: [{ code, message: 'what is wrong' }] }] },
    DEFAULT,
  );
  expect(only).toMatchObject({ rule, message: 'what is wrong', subject: SERVICE.id });
  expect(others).toEqual([]);
});

test('a larger size allows more connections', () => {
  expect(rulesOfService({ memory_gbs: 4, connections: 159 })).toEqual([]);
  expect(rulesOfService({ memory_gbs: 4, connections: 160 })).toEqual(['connections']);
});

test('keys, certificates and disks of regions are conditions', () => {
  const key = { public_key: 'HDx', project_id: 'n765kku04j', name: 'ci', expires_at: after(6) };
  expect(rulesOf({ keys: [key, { ...key, expires_at: after(8) }] })).toEqual(['key_expiring']);
  expect(rulesOf({ certificateExpires: after(13) })).toEqual(['certificate_expiring']);
  expect(rulesOf({ certificateExpires: after(15) })).toEqual([]);
  const regions = [{ code: 'local', message: 'the disk is 96 % full' }];
  expect(rulesOf({ regions })).toEqual(['region_disk']);
  expect(rulesOf({ regions, certificateExpires: after(1), operatorProject: null })).toEqual([]);
});

test('a project changes a threshold, and disables a rule', () => {
  const services = [{ ...SERVICE, connections: 50 }];
  const settings = { enabled: true, threshold: 50, for_minutes: null };
  expect(rulesOf({ services }, (_, rule) => ruleOf(rule, settings))).toContain('connections');
  expect(rulesOf({ services }, (_, rule) => ruleOf(rule, { ...settings, enabled: false }))).toEqual(
    [],
  );
});

test('every rule has a default', () => {
  for (const rule of ALERT_RULE_NAMES) expect(ruleOf(rule, null).enabled).toBe(true);
});

// Incidents.

const CONDITION: Condition = {
  projectId: 'n765kku04j',
  rule: 'unstable',
  subject: SERVICE.id,
  serviceId: SERVICE.id,
  about: 'orders',
  message: 'is unstable',
};
const STORED: StoredIncident = {
  id: '7',
  project_id: CONDITION.projectId,
  rule: CONDITION.rule,
  subject: CONDITION.subject,
  service_id: SERVICE.id,
  about: 'orders',
  message: CONDITION.message,
  since: before(0),
  opened: null,
  cleared: null,
  resolved: null,
};
const NOTHING = {
  begun: [],
  opened: [],
  forgotten: [],
  cleared: [],
  held: [],
  resolved: [],
  reworded: [],
};
const steady = new Date(NOW.getTime() - STEADY_MS);

test.for<[string, StoredIncident[], Condition[], object]>([
  ['a new condition waits', [], [CONDITION], { begun: [{ condition: CONDITION, opens: false }] }],
  [
    'a condition of a rule without a wait opens at once',
    [],
    [{ ...CONDITION, rule: 'disk_full' }],
    { begun: [{ condition: { ...CONDITION, rule: 'disk_full' }, opens: true }] },
  ],
  ['a condition that waits yet changes nothing', [STORED], [CONDITION], {}],
  [
    'a condition that held for the time of its rule opens',
    [{ ...STORED, since: before(1) }],
    [CONDITION],
    { opened: [{ ...STORED, since: before(1) }] },
  ],
  ['a condition that ends before is forgotten', [STORED], [], { forgotten: ['7'] }],
  ['an open incident stays', [{ ...STORED, opened: NOW }], [CONDITION], {}],
  ['its condition ends', [{ ...STORED, opened: NOW }], [], { cleared: ['7'] }],
  [
    'its condition holds again',
    [{ ...STORED, opened: NOW, cleared: before(4) }],
    [CONDITION],
    { held: ['7'] },
  ],
  ['it is steady for too short a time', [{ ...STORED, opened: NOW, cleared: before(4) }], [], {}],
  [
    'it resolves',
    [{ ...STORED, opened: NOW, cleared: steady }],
    [],
    { resolved: [{ ...STORED, opened: NOW, cleared: steady }] },
  ],
  [
    'the next one waits after a resolved one',
    [
      { ...STORED, opened: NOW, resolved: before(4) },
      { ...STORED, id: '8', since: before(3) },
    ],
    [CONDITION],
    {},
  ],
  [
    'other figures are shown, and open nothing',
    [{ ...STORED, opened: NOW }],
    [{ ...CONDITION, message: 'worse' }],
    { reworded: [{ id: '7', message: 'worse' }] },
  ],
])('%s', ([, stored, conditions, changes]) => {
  expect(incidentChanges(NOW, stored, conditions, DEFAULT)).toEqual({ ...NOTHING, ...changes });
});

// Quiet hours and messages.

const NIGHT: QuietHours = {
  from: '22:00',
  to: '07:00',
  time_zone: 'Europe/Berlin',
  critical_passes: true,
};

test.for([
  ['2026-03-01T20:59:00Z', false],
  ['2026-03-01T21:00:00Z', true],
  ['2026-03-01T23:30:00Z', true],
  ['2026-03-02T05:59:00Z', true],
  ['2026-03-02T06:00:00Z', false],
  // Summer time begins on 29 March.
  ['2026-03-30T20:00:00Z', true],
] as const)('at %s a night in Berlin is quiet: %s', ([at, expected]) => {
  expect(isQuiet(NIGHT, new Date(at))).toBe(expected);
});

test('quiet hours of one day, and time zones', () => {
  const noon = { ...NIGHT, from: '12:00', to: '13:00', time_zone: 'UTC' };
  expect([isQuiet(noon, NOW), isQuiet(noon, before(1))]).toEqual([true, false]);
  expect(isTimeZone('Europe/Berlin')).toBe(true);
  expect(isTimeZone('Europe/Nowhere')).toBe(false);
});

const messageAbout = (id: string, resolved: string | null): AlertMessage => ({
  kind: resolved === null ? 'opened' : 'resolved',
  project: { id: 'n765kku04j', name: 'default' },
  at: NOW.toISOString(),
  incidents: [
    {
      id,
      rule: 'unstable',
      severity: 'critical',
      service_id: SERVICE.id,
      about: '<orders> & more',
      message: 'is unstable',
      opened: NOW.toISOString(),
      resolved,
    },
  ],
});

test('a summary has each incident once, as it is at last', () => {
  const held = [
    messageAbout('1', null),
    messageAbout('2', null),
    messageAbout('1', NOW.toISOString()),
  ];
  const summary = summaryOf(held, NOW);
  expect(summary?.incidents.map(({ id, resolved }) => [id, resolved === null])).toEqual([
    ['1', false],
    ['2', true],
  ]);
  expect(summary === null ? '' : titleOf(summary)).toContain('incidents in quiet hours: 2');
  expect(summaryOf([messageAbout('1', null)], NOW)).toEqual(messageAbout('1', null));
  expect(summaryOf([], NOW)).toBeNull();
});

test('each form has what is wrong, and no marks of its receiver', () => {
  const message = messageAbout('1', null);
  expect(titleOf(message)).toBe('[Howdah] default: critical: <orders> & more: unstable');
  expect(textOf(message)).toContain('is unstable\nopened 2026-03-01T12:00:00.000Z');
  expect(JSON.stringify(slackBody(message))).toContain('&lt;orders&gt; &amp; more');
  expect(JSON.stringify(teamsBody(message))).toContain('"type":"AdaptiveCard"');
  expect(pagerDutyEvents(message, 'm', 'key')).toMatchObject([
    { event_action: 'trigger', dedup_key: 'howdah-1', payload: { severity: 'critical' } },
  ]);
  expect(pagerDutyEvents(messageAbout('1', NOW.toISOString()), 'm', 'key')).toEqual([
    { routing_key: 'key', event_action: 'resolve', dedup_key: 'howdah-1' },
  ]);
});
