import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { EnvironmentError, readApi, readHome, readKey, readProject } from './environment.ts';

const V1 = '/public/api/v1';

test.each([
  [`http://h:8080${V1}`, `http://h:8080${V1}`],
  [`http://h:8080${V1}/`, `http://h:8080${V1}`],
  [`\uFEFFhttps://h${V1}\r\n`, `https://h${V1}`],
  ['https://h/', `https://h${V1}`],
  ['https://h/prefix/public/api/v1', 'https://h/prefix/public/api/v1'],
])('HD_API %j is understood', (text, address) => {
  expect(readApi(text)).toBe(address);
});

test.each([
  ['', /^HD_API: is empty/],
  ['h:8080/public/api/v1', /has no scheme/],
  ['127.0.0.1:8080', /has no scheme/],
  ['ftp://h/', /the scheme ftp:/],
  [`http://u:secret@h${V1}`, /HD_KEY$|HD_KEY;/],
  [`http://h${V1}?x=1`, /nothing may follow/],
  [`http://h${V1}/projects/abcde12345`, /HD_PROJECT/],
  [`"http://h${V1}"`, /quotation mark/],
  ['http://h\nx', /control character/],
])('HD_API %j is refused with one sentence', (text, sentence) => {
  expect(() => readApi(text)).toThrow(EnvironmentError);
  expect(() => readApi(text)).toThrow(sentence);
});

test('a key is taken without its line end, and never shown', () => {
  expect(readKey('public:hidden\r\n')).toBe('public:hidden');
  expect(readKey(undefined)).toBeUndefined();
  for (const text of ['', 'public', 'Bearer public:hidden', 'public: hidden', "'public:hidden'"])
    expect(() => readKey(text), text).toThrow(/^HD_KEY: (?!.*hidden)/);
});

test('a project is an id, or an address that ends with it', () => {
  expect(readProject('abcde12345')).toEqual({ id: 'abcde12345', apiOrigin: null });
  expect(readProject(`http://h:1${V1}/projects/abcde12345/`)).toEqual({
    id: 'abcde12345',
    apiOrigin: 'http://h:1',
  });
  for (const text of ['', '/', 'my project', 'h/projects/x', `http://h${V1}/projects/`])
    expect(() => readProject(text), text).toThrow(/^HD_PROJECT: /);
});

test('a home that is a file, or below one, is refused', () => {
  const directory = mkdtempSync(join(tmpdir(), 'hd-home-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const file = join(directory, 'file');
  writeFileSync(file, '');
  expect(readHome(`${directory}\n`)).toBe(directory);
  expect(readHome(join(directory, 'new'))).toBe(join(directory, 'new'));
  for (const path of [file, join(file, 'below')])
    expect(() => readHome(path)).toThrow(/^HOWDAH_HOME: .*name a directory/);
});
