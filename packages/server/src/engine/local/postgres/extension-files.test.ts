import { expect, test } from 'vitest';
import { parseControlFile } from './extension-files.ts';

const TEXT = `# the control file
comment = 'it''s an example'   # in quotes
default_version = '1.2'
module_pathname = '$libdir/example'
relocatable = false
trusted = true
superuser = false
schema = pg_catalog
requires = 'cube, hstore'
`;

test('a control file is read as PostgreSQL reads it', () => {
  const files = ['1.0.sql', '1.0--1.2.sql', '1.2.sql', '1.2--1.3.sql'].map(
    (one) => `example--${one}`,
  );
  files.push('other--1.sql', 'example--2.control');
  expect(parseControlFile({ name: 'example', directory: '/x', files }, TEXT)).toEqual({
    name: 'example',
    directory: '/x',
    defaultVersion: '1.2',
    comment: "it's an example",
    requires: ['cube', 'hstore'],
    trusted: true,
    superuser: false,
    relocatable: false,
    schema: 'pg_catalog',
    versions: ['1.0', '1.2'],
    reachable: ['1.0', '1.2', '1.3'],
  });
});

test('an extension needs a superuser unless its control file denies it', () => {
  expect(parseControlFile({ name: 'example', directory: '/x', files: [] }, '')).toMatchObject({
    defaultVersion: null,
    requires: [],
    trusted: false,
    superuser: true,
    relocatable: false,
    schema: null,
  });
});
