import { expect, test } from 'vitest';
import { MOVE_ROLES } from '../../moves.ts';
import { rolesOf } from './target.ts';

const { reserved, roles, databases } = rolesOf('COPY', 'CONTROL');
const created = roles.flatMap((sql) => /create role (\w+) (.*);/.exec(sql)?.slice(1, 3) ?? []);

test('a superuser is made as one: a role that is found never becomes it', () => {
  expect(created.slice(0, 2)).toEqual(['postgres', "superuser login password 'COPY'"]);
  const altered = roles.flatMap((sql) => [...sql.matchAll(/alter role .*/g)].join('\n'));
  expect(altered.join('\n')).not.toMatch(/\bsuperuser/);
  expect(altered.join('\n')).toContain("alter role postgres login password 'COPY'");
});

test('an abort drops what a move makes, and nothing that is in use without it', () => {
  const names = created.filter((_, index) => index % 2 === 0);
  expect(names).toEqual([...MOVE_ROLES, 'howdah_reader', 'howdah_pooler']);
});

test('no role of a tenant gets the rights that the operator gives to its own', () => {
  expect(reserved).toEqual([
    ...MOVE_ROLES,
    'howdah_reader',
    'howdah_pooler',
    'cnpg_metrics_exporter',
    'cnpg_pooler_pgbouncer',
  ]);
});

test.each(['howdah_reader', 'howdah_pooler'])(
  '%s loses what somebody may have given to it who made it before',
  (name) => {
    const sql = roles.filter((statement) => statement.includes(name)).join('\n');
    expect(sql).toMatch(
      new RegExp(
        `alter role ${name} .*nosuperuser nocreatedb nocreaterole noreplication password null`,
      ),
    );
    expect(sql).toContain(`alter role ${name} reset all`);
    expect(sql).toContain(`execute format('revoke %s from ${name} granted by %s cascade'`);
  },
);

test('new databases can have a pooler too', () => {
  expect(databases.map((one) => one.name)).toEqual(['tsdb', 'template1']);
});
