import { expect, test } from 'vitest';
import { partsOf, type Part } from './scan.ts';

/** The parts of a script that arrives in pieces of some size. */
async function partsIn(script: string, size = script.length): Promise<Part[]> {
  const pieces = async function* () {
    const bytes = Buffer.from(script);
    for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
  };
  const parts: Part[] = [];
  for await (const part of partsOf(pieces())) {
    const last = parts.at(-1);
    if (part.kind === 'rows' && last?.kind === 'rows')
      parts[parts.length - 1] = { ...last, text: last.text + part.text };
    else parts.push(part);
  }
  return parts;
}

const outlines = (parts: readonly Part[]): string[] =>
  parts.map((part) => (part.kind === 'statement' ? part.outline : part.text));

const SCRIPT = `\ufeff-- a dump; with a semicolon
/* one /* in another; */ ; */
CREATE TABLE "odd;name" (a text DEFAULT 'it''s; \\', b text DEFAULT E'\\';''', c$d$ int);
CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $body$
begin; \\c nowhere $$;$$
end $body$;
CREATE FUNCTION g(i int) RETURNS int BEGIN ATOMIC
  SELECT CASE WHEN i > 0 THEN 1 END;
  SELECT 2;
END;
CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2);
COPY public.t (a, b) FROM stdin;
1\tit's
\\.x\t;
\\.
\\connect -reuse-previous=on "dbname='a b'"
BEGIN; SELECT 'ä'; END
`;

const OUTLINES = [
  `CREATE TABLE "odd;name" (a text DEFAULT '', b text DEFAULT '', c$d$ int)`,
  "CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS ''",
  'CREATE FUNCTION g(i int) RETURNS int BEGIN ATOMIC ' +
    'SELECT CASE WHEN i > 0 THEN 1 END; SELECT 2; END',
  'CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2)',
  'COPY public.t (a, b) FROM stdin',
  "1\tit's\n\\.x\t;\n\\.\n",
  `\\connect -reuse-previous=on "dbname='a b'"`,
  'BEGIN',
  "SELECT ''",
  'END',
];

test.each([10_000, 64, 7, 1])('a script in pieces of %i bytes has the same parts', async (size) => {
  const parts = await partsIn(SCRIPT, size);
  expect(outlines(parts)).toEqual(OUTLINES);
  expect(parts.flatMap((part) => (part.kind === 'rows' ? [] : [part.line]))).toEqual([
    1, 4, 7, 11, 12, 16, 17, 17, 17,
  ]);
});

test('the parts are the script: nothing is lost', async () => {
  const parts = await partsIn(SCRIPT);
  const bytes = parts.map(({ text }) => text).join('');
  expect(Buffer.from(bytes, 'latin1').toString().replaceAll(/\s/g, '')).toBe(
    SCRIPT.replace('\ufeff', '').replaceAll(/\s/g, ''),
  );
});

test('backslashes escape in all strings once an old dump has asked for that', async () => {
  const script = "SET standard_conforming_strings = off;\nSELECT 'a\\';b';\nSELECT 1;";
  expect(outlines(await partsIn(script))).toEqual([
    'SET standard_conforming_strings = off',
    "SELECT ''",
    'SELECT 1',
  ]);
});

test('a string of many megabytes is one statement', async () => {
  const script = `INSERT INTO t VALUES ('${'\\x00'.repeat(3_000_000)}');\nSELECT 1;\n`;
  expect((await partsIn(script, 65_536)).map(({ kind }) => kind)).toEqual([
    'statement',
    'statement',
  ]);
});
