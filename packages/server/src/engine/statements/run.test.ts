import { expect, test } from 'vitest';
import { beginReading } from './run.ts';

/** A session that notes its statements. @param fails whether it refuses them */
function session(fails = false) {
  const statements: string[] = [];
  let isDestroyed = false;
  const client = Object({
    connection: { stream: { destroy: () => (isDestroyed = true) } },
    query: async (text: string) => {
      statements.push(text);
      if (fails) throw new Error('it is gone');
      return { rows: [{ facts: true }] };
    },
  });
  return { client, statements, isDestroyed: () => isDestroyed };
}

test('a statement of a user runs in a transaction that cannot write', async () => {
  const { client, statements, isDestroyed } = session();
  expect(await beginReading(client, Object({}), 'true as facts')).toEqual({ facts: true });
  expect(statements[0]).toMatch(/^begin .*\bread only\b/);
  // The first snapshot is taken before the user's statement: nothing makes it one that writes.
  expect(statements[1]).toBe('select true as facts');
  expect(isDestroyed()).toBe(false);
});

test('a session in which no transaction begins is destroyed', async () => {
  const { client, isDestroyed } = session(true);
  await expect(beginReading(client, Object({}), 'true')).rejects.toThrow('it is gone');
  expect(isDestroyed()).toBe(true);
});
