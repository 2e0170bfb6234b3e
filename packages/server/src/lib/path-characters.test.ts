import { expect, test } from 'vitest';
import { problemOfPath } from './path-characters.ts';

test.each([
  '/srv/my data',
  '/srv/#1',
  "/srv/o'clock",
  '/srv/a;b&c|d',
  '/srv/100%',
  '/srv/ü (1) [x]',
  '/srv/a=b:c',
])('%s can be the path of an installation', (path) => expect(problemOfPath(path)).toBeNull());

test.each([
  '/srv/a\nb',
  '/srv/a"b',
  '/srv/$HOME',
  '/srv/`id`',
  '/srv/a\\b',
  '/srv/a,b',
  '/srv/a\tb',
])('%j cannot, and the message names the character', (path) =>
  expect(problemOfPath(path)).toMatch(/^HOWDAH_HOME: .* contains ".+", which /),
);
