import { expect, test } from 'vitest';
import { DatabaseError } from 'pg';
import { EngineUnavailable } from '../engine.ts';
import { oneAtATime } from '../moved-data.ts';
import { withinTime } from '../statements/session.ts';
import { MoveRefused } from '../moves.ts';
import { closeAndStop, makeRoles, whyNotStopped, inEach } from './moves.ts';

test('an examination has one time limit, however many databases there are', () => {
  let nowMs = 1000;
  const within = withinTime(60_000, () => nowMs);
  expect(within(10_000)).toBe(10_000);
  nowMs += 57_000;
  expect(within(10_000)).toBe(3000);
  nowMs += 3000;
  expect(() => within(10_000)).toThrow(EngineUnavailable);
});

test('a service is examined once at a time', async () => {
  const ends: (() => void)[] = [];
  const examine = oneAtATime(
    (id: string) => new Promise<string>((resolve) => ends.push(() => resolve(id))),
  );
  const first = examine('one');
  await expect(examine('one')).rejects.toThrow(EngineUnavailable);
  const other = examine('two');
  for (const end of ends) end();
  expect(await Promise.all([first, other])).toEqual(['one', 'two']);
  const again = examine('one');
  ends.at(-1)?.();
  expect(await again).toBe('one');
});

/** A session that answers each statement that fits with rows. */
function session(...answers: [RegExp, object[]][]) {
  const asked: string[] = [];
  const query = async (text: string) => {
    asked.push(text.trim().replaceAll(/\s+/g, ' '));
    return { rows: answers.find(([pattern]) => pattern.test(text))?.[1] ?? [] };
  };
  return { asked, client: Object({ query }) };
}

const LOCK = 'lock table pg_authid, pg_auth_members in share row exclusive mode';
const ROLES = { reserved: ['postgres'], roles: ['create role postgres superuser'] };

test('no tenant can take the name of a superuser between the check and its creation', async () => {
  const { asked, client } = session();
  await makeRoles(client, ROLES);
  expect(asked).toEqual([
    'begin',
    LOCK,
    expect.stringMatching(/^select rolname/),
    'create role postgres superuser',
    'commit',
  ]);
});

test('a service is stopped in time, or not at all', () => {
  const time = { isOver: false, isKept: false };
  expect(whyNotStopped(true, time)).toBe(null);
  expect(whyNotStopped(true, { ...time, isOver: true })).toContain('in time');
  expect(whyNotStopped(false, { isOver: true, isKept: true })).toBe(null);
});

test('a server that somebody else has stopped may have a password that the copy has not', () => {
  expect(whyNotStopped(false, { isOver: false, isKept: false })).toContain('stopped meanwhile');
});

test('a role of a tenant is not changed', async () => {
  const { asked, client } = session([/^select rolname/, [{ name: 'postgres' }]]);
  await expect(makeRoles(client, ROLES)).rejects.toThrow(MoveRefused);
  expect(asked.at(-1)).toMatch(/^select rolname/);
});

test('the password that the copy gets cannot change before the server is stopped', async () => {
  const { asked, client } = session([/rolpassword as verifier/, [{ verifier: 'SCRAM' }]]);
  await closeAndStop(
    client,
    async (verifier) => {
      asked.push(`keep ${verifier}`);
      return ROLES.reserved;
    },
    async () => void asked.push('stop'),
  );
  expect(asked).toEqual([
    'alter role postgres password null',
    'begin',
    LOCK,
    expect.stringContaining('as verifier'),
    'keep SCRAM',
    expect.stringMatching(/^select rolname/),
    expect.stringContaining('from pg_db_role_setting'),
    // Senders of tenants, which may read nothing, would delay the stop.
    expect.stringContaining("where not (usename is not distinct from $1 and state = 'streaming')"),
    'stop',
  ]);
});

test('a server that has got a role of a reserved name meanwhile is not stopped', async () => {
  const { asked, client } = session([/^select rolname/, [{ name: 'postgres' }]]);
  const keep = async () => ROLES.reserved;
  const stopping = closeAndStop(client, keep, async () => void asked.push('stop'));
  await expect(stopping).rejects.toThrow('it has a role postgres');
  expect(asked).not.toContain('stop');
});

test('a server that has got read-only roles meanwhile is not stopped', async () => {
  const { asked, client } = session([/pg_db_role_setting/, [{ name: 'reports' }]]);
  const keep = async () => ROLES.reserved;
  const stopping = closeAndStop(client, keep, async () => void asked.push('stop'));
  await expect(stopping).rejects.toThrow('it has got read-only roles');
  expect(asked).not.toContain('stop');
});

test('a server whose password cannot be kept is not stopped', async () => {
  const { asked, client } = session();
  const keep = () => Promise.reject(new Error('no answer'));
  const stopping = closeAndStop(client, keep, async () => void asked.push('stop'));
  await expect(stopping).rejects.toThrow('no answer');
  expect(asked).not.toContain('stop');
});

const unlimited = (mostMs: number): number => mostMs;

/** An error of PostgreSQL, as a session reports it. */
function refusal(code: string): EngineUnavailable {
  const cause = new DatabaseError(code, 0, 'error');
  cause.code = code;
  return new EngineUnavailable(code, { cause });
}

test('a database that is locked keeps none of the others back', async () => {
  const done: string[] = [];
  const work = async (database: string) => {
    if (database === 'locked') throw refusal('55P03');
    // The owner has dropped this database meanwhile.
    if (database === 'dropped') throw refusal('3D000');
    done.push(database);
  };
  const all = inEach(['first', 'locked', 'dropped', 'last'], unlimited, work);
  await expect(all).rejects.toThrow('55P03');
  expect(done).toEqual(['first', 'last']);
  await inEach(['dropped', 'last'], unlimited, work);
});

test('all databases have one time limit, however many there are', async () => {
  let nowMs = 0;
  const done: string[] = [];
  const within = withinTime(60_000, () => nowMs);
  const work = async (database: string) => {
    done.push(database);
    nowMs += within(25_000);
    throw refusal('57014');
  };
  const all = inEach(['a', 'b', 'c', 'd', 'e'], within, work);
  await expect(all).rejects.toThrow('took longer than 60 s');
  expect(done).toEqual(['a', 'b', 'c']);
});
