/** The output of commands, their waiting and their exit codes. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ERROR_CODES, ERROR_STATUS, type ErrorCode } from '@howdah/contract/errors';
import { OPERATION, type Answer } from './answers.ts';
import { PLAIN_SERVICE, SERVICE } from './examples.ts';
import { howdah, serve } from './api.ts';
import { api, bin, ok, setUp, tearDown } from './behaviour-shell.ts';
import { FORMATS } from './probe.ts';

beforeAll(setUp);
afterAll(tearDown);

/** SERVICE is PROD. */
const CONFIRMED = ['--confirm', 'orders'];

const refusal = (code: ErrorCode): Answer => ({
  status: ERROR_STATUS[code],
  body: { code, message: `it is ${code}`, request_id: 'r-1' },
});

/**
 * As docs/cli.md says: the lines of its table begin with an exit code and end with codes of the
 * API.
 */
const MANUAL = await readFile(new URL('../../../docs/cli.md', import.meta.url), 'utf8');

const EXITS = MANUAL.split('\n').flatMap((line): [ErrorCode, number][] => {
  const [, exit, codes = ''] = /^\| (\d) \|.*\|(.*)\|$/.exec(line) ?? [];
  return ERROR_CODES.filter((code) => codes.includes(`\`${code}\``)).map((code) => [
    code,
    Number(exit),
  ]);
});

test('docs/cli.md says the exit code of every error of the API', () => {
  expect(EXITS.map(([code]) => code).toSorted()).toEqual(ERROR_CODES.toSorted());
});

test.for(EXITS)('error %s has exit code %i and prints nothing to stdout', async ([code, exit]) => {
  const { run } = await api({ createVpc: refusal(code) });
  const outcome = await run('vpc', 'create', '--name', 'x', '--cidr', '10.1.0.0/16', '-o', 'json');
  expect(outcome).toEqual({ code: exit, stdout: '', stderr: `error: it is ${code}\n` });
});

test('a field that the server ignores is a warning on stderr', async () => {
  const vpc = { id: '1001', name: 'x', cidr: '10.1.0.0/16', region_code: 'local' };
  const warning = '299 - "fields that this call does not know were ignored: shade"';
  const { run } = await api({ createVpc: { status: 201, body: vpc, warning } });
  expect(await run('vpc', 'create', '--name', 'x', '--cidr', '10.1.0.0/16', '-o', 'json')).toEqual({
    code: 0,
    stdout: expect.stringContaining('1001'),
    stderr: 'warning: fields that this call does not know were ignored: shade\n',
  });
});

test('no control plane, no installation or not ready has exit code 8', async () => {
  const gone = await serve();
  gone.close();
  const nobody = await howdah(['vpc', 'delete', '1'], {
    ...gone.env,
    HOWDAH_HOME: join(bin, 'none'),
  });
  expect(nobody).toMatchObject({
    code: 8,
    stdout: '',
    stderr: expect.stringContaining('howdah up'),
  });
  const nowhere = await howdah(['vpc', 'list'], { HOWDAH_HOME: join(bin, 'none') });
  expect(nowhere).toMatchObject({
    code: 8,
    stderr: expect.stringContaining(join(bin, 'none', 'credentials.json')),
  });
  const { run } = await api({ listVpcs: refusal('UNAVAILABLE') });
  expect(await run('vpc', 'list')).toMatchObject({ code: 8 });
});

test('operations that fail, stall or exceed --timeout have their exit codes', async () => {
  const running = { ...OPERATION, status: 'running', finished: null };
  const failed = await api({
    getOperation: {
      status: 200,
      body: { ...OPERATION, status: 'failed', error: 'superseded by delete' },
    },
  });
  expect(
    await failed.run('service', 'resize', 'orders', '--cpu-millis', '2000', ...CONFIRMED),
  ).toMatchObject({
    code: 1,
    stdout: '',
    stderr: expect.stringMatching(
      /✗ start PostgreSQL.*\n✓ start PostgreSQL.*\nerror: resize failed: superseded by delete\n$/,
    ),
  });
  const stuck = await api({
    getOperation: { status: 200, body: { ...running, error: 'the disk is full' } },
  });
  expect(
    await stuck.run('service', 'stop', 'orders', '--timeout', '0', ...CONFIRMED),
  ).toMatchObject({
    code: 7,
    stdout: '',
    stderr: expect.stringMatching(
      new RegExp(
        String.raw`^(.*\n)*warning resize is failing and is being tried again: the disk is full\n` +
          String.raw`(.*\n)*error: .*tried again after 0 s`,
      ),
    ),
  });
  const slow = await api({ getOperation: { status: 200, body: running } });
  expect(await slow.run('service', 'stop', 'orders', '--timeout', '0', ...CONFIRMED)).toMatchObject(
    {
      code: 7,
      stdout: '',
      stderr: expect.stringContaining(
        'resize still runs after 0 s, and continues: howdah operation get 01jd3k7w0c',
      ),
    },
  );
  // Not waited for, it is no matter.
  expect(await slow.run('service', 'stop', 'orders', '--no-wait', ...CONFIRMED)).toMatchObject({
    code: 0,
    stderr: '',
  });
  expect(slow.called.filter((call) => call === 'stopService').length).toBe(2);
});

test('a wrong --timeout is refused before any call', async () => {
  const { run, called } = await api();
  expect(await run('service', 'stop', 'orders', '--timeout', 'soon')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('soon'),
  });
  expect(called).toEqual([]);
});

test('a create prints its password also if it is not waited for', async () => {
  const { run } = await api({
    getOperation: { status: 200, body: { ...OPERATION, status: 'failed', error: 'no' } },
  });
  for (const format of FORMATS) {
    const { code, stdout } = await run('service', 'create', '--name', 'orders', '-o', format);
    expect([format, code, stdout.includes('VeSmI78KsGT5AM9sxotaH6Jljes_KRHZ')]).toEqual([
      format,
      1,
      true,
    ]);
  }
});

test('arguments are ids or names; ambiguous and unknown names are refused', async () => {
  const twin = { ...PLAIN_SERVICE, name: 'orders' };
  const { run, called } = await api({ listServices: { status: 200, body: [SERVICE, twin] } });
  const refused = await run('service', 'delete', 'orders');
  expect(refused).toMatchObject({ code: 2, stdout: '' });
  for (const { service_id: id } of [SERVICE, twin]) expect(refused.stderr).toContain(id);
  expect(await run('service', 'delete', 'nothing')).toMatchObject({
    code: 3,
    stderr: expect.stringContaining('howdah service list'),
  });
  expect(called).not.toContain('deleteService');
  expect(await run('service', 'delete', SERVICE.service_id, ...CONFIRMED)).toMatchObject({
    code: 0,
  });
  // A name may look like an id.
  const other = await api({
    getService: refusal('NOT_FOUND'),
    listServices: { status: 200, body: [{ ...SERVICE, name: 'abcdefghij' }] },
  });
  expect(
    await other.run('service', 'delete', 'abcdefghij', '--confirm', 'abcdefghij'),
  ).toMatchObject({ code: 0 });
});

test('get and list say why a service is UNSTABLE, and what to do', async () => {
  const unstable = { ...SERVICE, status: 'UNSTABLE', warnings: undefined };
  const repair = { ...OPERATION, kind: 'repair', status: 'running', finished: null };
  const { run } = await api({
    getService: ok(unstable),
    listServices: ok([unstable]),
    listOperations: ok([{ ...repair, error: 'no port is left' }]),
  });
  for (const line of [['list'], ['get', SERVICE.service_id]]) {
    const { stdout, stderr, code } = await run('service', ...line);
    expect([code, stdout.includes('UNSTABLE')]).toEqual([0, true]);
    expect(stderr).toBe(
      'problem orders (linltu4hxx) is UNSTABLE: repair is failing and is being tried again: ' +
        'no port is left\n' +
        '  howdah service operations orders shows its steps\n' +
        '  howdah logs orders shows its server log\n',
    );
  }
  const silent = await api({ getService: ok(unstable), listOperations: ok([]) });
  expect((await silent.run('service', 'get', SERVICE.service_id)).stderr).toContain(
    'no operation gives a reason',
  );
});

test('relative times are understood: --at -5m, --since yesterday', async () => {
  const { run, changed } = await api();
  expect((await run('service', 'fork', 'orders', '--at', '-5m')).code).toBe(0);
  expect(changed).toEqual(['forkService']);
  expect((await run('logs', 'orders', '--since', 'yesterday')).code).toBe(0);
  expect(await run('service', 'fork', 'orders', '--at', 'soon')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining(
      '--at: found soon; allowed: now, yesterday, a distance like -5m',
    ),
  });
  expect(changed).toEqual(['forkService']);
});

test('an error of the API names commands and options', async () => {
  const message =
    'target_time: found "x"; GET /projects/{project_id}/services/{service_id}/backups lists them';
  const { run } = await api({
    forkService: { status: 400, body: { code: 'INVALID_REQUEST', message, request_id: 'r' } },
  });
  expect(await run('service', 'fork', 'orders')).toEqual({
    code: 2,
    stdout: '',
    stderr: 'error: --at: found "x"; howdah backup list SERVICE shows them\n',
  });
});

test('get --wait returns when no operation is under way, with the service of then', async () => {
  const running = { ...OPERATION, kind: 'repair', status: 'running', finished: null };
  const verifying = { ...running, id: '01jd3k7w0d', kind: 'verifyBackup' };
  let looks = 0;
  const { run, called } = await api({
    get listOperations() {
      return ok(++looks < 3 ? [verifying, running] : [verifying]);
    },
    getOperation: ok({ ...OPERATION, kind: 'repair' }),
  });
  const { code, stdout, stderr } = await run('service', 'get', 'orders', '--wait');
  expect([code, stdout.includes('READY')]).toEqual([0, true]);
  expect(stderr).toContain('✓ start PostgreSQL');
  expect(called.filter((call) => call === 'getOperation').length).toBe(2);
  // The region of a service may have warnings.
  expect(called.slice(called.lastIndexOf('getOperation') + 1)).toContain('getService');
  expect(called.at(-1)).toBe('listRegions');
});
