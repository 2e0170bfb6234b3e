import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { createRounds } from './rounds.ts';
import { TUNING } from './tuning.ts';

const MS = TUNING.rounds.warnings.everyMs;

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function setUp() {
  const lines: object[] = [];
  const log = {
    info: () => undefined,
    error: () => undefined,
    warn: (facts: object) => void lines.push(facts),
  };
  return { rounds: createRounds(TUNING.rounds, log), lines };
}

/** Work that ends when the test says so. */
function held() {
  const ends: (() => void)[] = [];
  const work = () => new Promise<void>((resolve) => void ends.push(resolve));
  return { work, begun: () => ends.length, end: () => ends.at(-1)?.() };
}

describe('a round', () => {
  test('runs at once, then at its interval after the end of each run', async () => {
    const { rounds } = setUp();
    const { work, begun, end } = held();
    rounds.every('warnings', work).start();
    expect(begun()).toBe(1);
    await vi.advanceTimersByTimeAsync(3 * MS);
    expect(begun()).toBe(1);
    end();
    await vi.advanceTimersByTimeAsync(MS - 1);
    expect(begun()).toBe(1);
    await vi.advanceTimersByTimeAsync(1);
    expect(begun()).toBe(2);
  });

  test('that starts later runs first after its interval', async () => {
    const { rounds } = setUp();
    const { work, begun } = held();
    rounds.every('warnings', work).startLater();
    await vi.advanceTimersByTimeAsync(MS - 1);
    expect(begun()).toBe(0);
    await vi.advanceTimersByTimeAsync(1);
    expect(begun()).toBe(1);
  });

  test('asked for during a run runs once more for all who asked, and never overlaps', async () => {
    const { rounds } = setUp();
    const { work, begun, end } = held();
    const round = rounds.every('warnings', work);
    round.start();
    const ended: string[] = [];
    const asked = ['one', 'other'].map((who) => round.run().then(() => ended.push(who)));
    expect(begun()).toBe(1);
    end();
    await vi.advanceTimersByTimeAsync(0);
    expect([begun(), ended]).toEqual([2, []]);
    end();
    await Promise.all(asked);
    expect([begun(), ended]).toEqual([2, ['one', 'other']]);
  });

  test('that fails is logged, counted and tried again', async () => {
    const { rounds, lines } = setUp();
    rounds.every('warnings', () => Promise.reject(new Error('the database is away'))).start();
    await vi.advanceTimersByTimeAsync(MS);
    expect(lines).toEqual(
      Array.from({ length: 2 }, () => ({
        round: 'warnings',
        err: new Error('the database is away'),
      })),
    );
    expect(rounds.figures()).toEqual([
      expect.objectContaining({ name: 'warnings', runs: 2, failures: 2 }),
    ]);
  });

  test('that fails is tried again after its own interval where it has one', async () => {
    const { rounds } = setUp();
    let ran = 0;
    rounds
      .every('vpcs', () => {
        ran += 1;
        throw new Error('no network');
      })
      .start();
    await vi.advanceTimersByTimeAsync(0);
    await vi.advanceTimersByTimeAsync(TUNING.rounds.vpcs.againMs ?? 0);
    expect(ran).toBe(2);
  });

  test('that is closed waits for the run in progress and begins none', async () => {
    const { rounds } = setUp();
    const { work, begun, end } = held();
    const round = rounds.every('warnings', work);
    round.start();
    const again = round.run();
    let isClosed = false;
    const closed = round.close().then(() => (isClosed = true));
    await vi.advanceTimersByTimeAsync(0);
    expect(isClosed).toBe(false);
    end();
    await Promise.all([closed, again]);
    await vi.advanceTimersByTimeAsync(3 * MS);
    expect(begun()).toBe(1);
    await expect(rounds.run('warnings')).rejects.toThrow('no round of the name warnings is open');
  });

  test('closed with a grace waits no longer than that, and its work sees the end', async () => {
    const { rounds } = setUp();
    let isClosing = false;
    const round = rounds.every(
      'warnings',
      (closing) => new Promise(() => closing.addEventListener('abort', () => (isClosing = true))),
    );
    round.start();
    const closed = round.close(5000);
    await vi.advanceTimersByTimeAsync(5000);
    await closed;
    expect(isClosing).toBe(true);
  });
});

test('a name runs all its rounds', async () => {
  const { rounds } = setUp();
  const ran: string[] = [];
  for (const region of ['a', 'b'])
    rounds.every('warnings', () => void ran.push(region)).startLater();
  await rounds.run('warnings');
  expect(ran).toEqual(['a', 'b']);
});

test('a claim is renewed twice before it ends', async () => {
  const { CLAIM_MS } = await import('../store/claims.ts');
  expect(TUNING.rounds.claims.everyMs * 3).toBeLessThanOrEqual(CLAIM_MS);
});
