import { DatabaseError } from 'pg';
import { expect, test } from 'vitest';
import { EngineUnavailable } from '../engine.ts';
import { NoAnswer } from '../postgres/sessions/monitor.ts';
import { askServer } from './leasing.ts';

const ended = 'terminating connection due to administrator command';

test.each([
  ['does not run', new NoAnswer('the server is not running')],
  ['ends the session', new DatabaseError(ended, 1, 'error')],
  ['is gone', new Error('Connection terminated unexpectedly')],
])('a server that %s while it is asked is unavailable', async (_name, error) => {
  const monitor = { query: () => Promise.reject(error) };
  const asked = askServer(monitor, 'id', 'select 1');
  await expect(asked).rejects.toThrow(EngineUnavailable);
  await expect(asked).rejects.toThrow(error.message);
});
