import { expect, test } from 'vitest';
import { problemOfContents } from './contents.ts';

const OURS = { foreign: [], projects: ['other00000', 'ours000000'] };
const NEW = { foreign: [], projects: [] };
const FOREIGN = { foreign: ['public.orders', 'public.users'], projects: [] };

test.each([
  ['a new home takes an empty database', NEW, null, false, null],
  ['a new home does not take another installation', OURS, null, false, /this home is new/],
  ['a home takes its own', OURS, 'ours000000', false, null],
  ['a home does not take an empty one', NEW, 'ours000000', false, /is empty/],
  ['control planes that share files begin with an empty one', NEW, 'ours000000', true, null],
  ['a home does not take that of another', OURS, 'third00000', true, /another installation/],
  ['nobody takes one with foreign tables', FOREIGN, null, true, /public\.orders, public\.users\)/],
  ['nor a home that has a project', FOREIGN, 'ours000000', true, /tables of another program/],
])('%s', (_case, contents, project, mayBeNew, problem) => {
  const found = problemOfContents(contents, project, mayBeNew);
  if (problem === null) expect(found).toBeNull();
  else expect(found).toMatch(problem);
});
