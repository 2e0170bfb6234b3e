import { expect, test } from 'vitest';
import { isLogin } from './logins.ts';

test.each([
  ['postgres: tsdbadmin tsdb 127.0.0.1(50412) authentication', true],
  ['postgres: howdah: tsdbadmin tsdb 127.0.0.1(50412) authentication', true],
  ['postgres: walsender tsdbadmin 127.0.0.1(50412) authentication', true],
  ['postgres: tsdbadmin tsdb [local] authentication\0\0', true],
  ['postgres: tsdbadmin tsdb 127.0.0.1(50412) idle', false],
  ['postgres: app tsdb 127.0.0.1(50412) authentication', false],
  ['postgres: not_tsdbadmin tsdb 127.0.0.1(50412) authentication', false],
  ['postgres: checkpointer', false],
])('%s is a login of the admin role: %s', (title, expected) => {
  expect(isLogin(title)).toBe(expected);
});
