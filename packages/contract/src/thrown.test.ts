import { connect, type TcpNetConnectOpts } from 'node:net';
import { expect, test } from 'vitest';
import { messageOf } from './thrown.ts';

test('says what was thrown, whatever it was', () => {
  expect(messageOf(new Error('the disk is full'))).toBe('the disk is full');
  expect(messageOf('the disk is full')).toBe('the disk is full');
  expect(messageOf(undefined)).toBe('undefined');
  expect(messageOf(new TypeError(''))).toBe('TypeError');
});

test('says why none of several addresses answers', async () => {
  const thrown = await new Promise((resolve) => {
    const options: TcpNetConnectOpts = {
      host: 'database.invalid',
      port: 1,
      lookup: (_name, _options, done) =>
        done(null, [
          { address: '127.0.0.1', family: 4 },
          { address: '127.0.0.2', family: 4 },
        ]),
    };
    connect(options).on('error', resolve);
  });
  expect(messageOf(thrown)).toBe(
    'connect ECONNREFUSED 127.0.0.1:1; connect ECONNREFUSED 127.0.0.2:1',
  );
});
