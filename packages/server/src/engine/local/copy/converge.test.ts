import { expect, test } from 'vitest';
import { databaseSql, serviceSql } from './converge.ts';
import { inOneLine } from '../postgres/single-user.ts';

test('single-user mode gets each statement in a line', () => {
  for (const line of [...serviceSql(), ...databaseSql()])
    expect(inOneLine(line)).toMatch(
      /^(do|select|create|insert|delete|alter|grant|revoke|update) \S/i,
    );
});
