import { DatabaseError } from 'pg';
import { expect, test } from 'vitest';
import { EngineUnavailable } from '../engine.ts';
import { inEach } from './move-functions.ts';
import { withinTime } from '../time-limit.ts';

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
    // Its owner has dropped it meanwhile.
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
