/** Questions, progress and completion at a terminal, and the output for a shell. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { OPERATION, PLAN, type Answer } from './answers.ts';
import { peering, PLAIN_SERVICE, SERVICE } from './examples.ts';
import { DRY_RUN, HOWDAH, howdah, type Outcome } from './api.ts';
import { api, bin, ok, setUp, tearDown } from './behaviour-shell.ts';
import { untilExpected } from '../../server/test/until.ts';

beforeAll(setUp);
afterAll(tearDown);

/** Runs a line of a shell. */
async function shell(program: string, line: string, env: Record<string, string>): Promise<Outcome> {
  const child = spawn(program, ['-c', line], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 800_000,
  });
  const said = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => (said.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said.stderr += text));
  await once(child, 'close');
  return { code: child.exitCode, ...said };
}

/**
 * Runs a line on a terminal, where somebody types when asked; who is not to be asked says no. Both
 * streams come out as one.
 */
async function onTerminal(
  line: string,
  env: Record<string, string>,
  { typed = 'n', at = '[y/N]' } = {},
): Promise<{ code: number | null; text: string }> {
  const child = spawn(
    'script',
    ['--quiet', '--return', '--flush', '--command', line, '/dev/null'],
    {
      env: { TERM: 'xterm', ...env },
      stdio: ['pipe', 'pipe', 'inherit'],
      timeout: 800_000,
    },
  );
  let text = '';
  let isAnswered = false;
  child.stdout.setEncoding('utf8').on('data', (part: string) => {
    text += part;
    if (!isAnswered && text.includes(at)) {
      isAnswered = true;
      child.stdin.write(`${typed}\n`);
    }
  });
  await once(child, 'close');
  return { code: child.exitCode, text };
}

const DEV = { ...SERVICE, metadata: { environment: 'DEV' } };

test('at a terminal a delete asks; --yes and --dry-run do not ask', async () => {
  const note = 'Its archive is removed too.';
  const { env, changed } = await api({
    getService: ok(DEV),
    listServices: ok([DEV]),
    [DRY_RUN]: ok({ ...PLAN, note }),
  });
  const asked = await onTerminal('howdah service delete orders', env, { typed: 'n' });
  expect(asked.text.indexOf(note)).toBeGreaterThanOrEqual(0);
  expect(asked.text.indexOf(note)).toBeLessThan(asked.text.indexOf('[y/N]'));
  expect(asked).toMatchObject({
    code: 4,
    text: expect.stringContaining(
      'Delete the DEV service orders (linltu4hxx) with all its data? [y/N]',
    ),
  });
  expect(await onTerminal('howdah service delete orders --dry-run', env)).toMatchObject({
    code: 0,
    text: expect.stringContaining('Nothing was done.'),
  });
  expect(changed).toEqual([]);
  const agreed = await onTerminal('howdah service delete orders', env, { typed: 'y' });
  expect(agreed).toMatchObject({ code: 0, text: expect.stringContaining('orders is deleted') });
  expect(changed).toEqual(['deleteService']);
  const shown = await onTerminal('howdah vpc delete office --yes', env);
  expect(shown.text).not.toContain('[y/N]');
  expect(shown.code).toBe(0);
  expect(changed).toEqual(['deleteService', 'deleteVpc']);
});

test('at a terminal a delete, stop or restart of a PROD service asks for its name', async () => {
  const { env, run, changed } = await api();
  for (const [verb, effects] of [
    ['delete', 'ends sessions, closes an endpoint for its clients and loses data'],
    ['stop', 'ends sessions and closes an endpoint for its clients'],
    ['restart', 'ends sessions'],
  ]) {
    const what = `this ${effects}, and orders (linltu4hxx) is PROD`;
    const question = { at: `Type orders to continue: ${what}: ` };
    const line = `howdah service ${verb} orders`;
    expect(await onTerminal(line, env, { ...question, typed: 'y' })).toMatchObject({
      code: 4,
      text: expect.stringContaining('nothing was done: another name was typed'),
    });
    expect(await onTerminal(`${line} --dry-run`, env)).toMatchObject({ code: 0 });
    expect(changed.splice(0)).toEqual([]);
    expect((await onTerminal(line, env, { ...question, typed: 'orders' })).code).toBe(0);
    expect((await onTerminal(`${line} --confirm orders`, env)).code).toBe(0);
    expect((await run('service', String(verb), 'orders', '--confirm', 'orders')).code).toBe(0);
    expect(changed.splice(0)).toEqual(Array.from({ length: 3 }, () => `${verb}Service`));
    // A script says the name: nobody can be asked.
    expect(await run('service', String(verb), 'orders')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(`${what}: add --confirm orders`),
    });
    expect(changed).toEqual([]);
  }
});

test('a stop of a DEV service does not ask', async () => {
  const { env, changed } = await api({ getService: ok(DEV), listServices: ok([DEV]) });
  expect((await onTerminal('howdah service stop orders', env)).code).toBe(0);
  expect(changed).toEqual(['stopService']);
});

test('events --follow says how to end it', async () => {
  const { env } = await api();
  const child = spawn(process.execPath, [HOWDAH, 'events', '--follow'], {
    env,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said += text));
  await untilExpected('the command says how to end it', () =>
    expect(said).toContain('Ctrl-C ends it'),
  );
  child.kill('SIGINT');
  await once(child, 'close');
});

test('at a terminal a purge asks for the name; --confirm and --dry-run do not ask', async () => {
  const { env, run, changed, called } = await api();
  const question =
    'Type orders to remove the PROD service orders (linltu4hxx) with all its data, ' +
    'so that nobody can restore it: ';
  const wrong = await onTerminal('howdah service purge orders', env, {
    typed: 'order',
    at: 'restore it:',
  });
  expect(wrong).toMatchObject({ code: 4, text: expect.stringContaining(question) });
  expect(await onTerminal('howdah service purge orders --dry-run', env)).toMatchObject({
    code: 0,
    text: expect.stringContaining('Nothing was done.'),
  });
  expect(await run('service', 'purge', 'orders', '--confirm', 'shop')).toMatchObject({
    code: 2,
    stderr: 'error: --confirm: found shop; the service is named orders\n',
  });
  expect(changed).toEqual([]);
  const typed = await onTerminal('howdah service purge orders', env, {
    typed: 'orders',
    at: 'restore it:',
  });
  expect(typed).toMatchObject({ code: 0, text: expect.stringContaining('orders is removed') });
  const given = await onTerminal('howdah service purge orders --confirm orders', env);
  expect(given.code).toBe(0);
  expect(given.text).not.toContain('restore it:');
  expect(changed).toEqual(['deleteService', 'deleteService']);
  expect(called).toContain('deleteService');
});

test('without a terminal nothing asks', async () => {
  const { run, called } = await api();
  for (const line of [
    ['vpc', 'delete', '1001'],
    ['peering', 'delete', '1001', '2001'],
    ['webhook', 'delete', '7'],
    ['key', 'revoke', 'ci'],
  ])
    expect(await run(...line), line.join(' ')).toMatchObject({ code: 0, stdout: '' });
  expect(called).toEqual(
    expect.arrayContaining(['deleteVpc', 'deletePeering', 'deleteWebhook', 'revokeKey']),
  );
});

const ESCAPE = '\u001b';

test('colour and the live list of steps are for terminals only', async () => {
  const running = {
    ...OPERATION,
    status: 'running',
    finished: null,
    steps: [{ ...OPERATION.steps[0], finished: null }],
  };
  let looks = 0;
  const { env, run } = await api({
    get getOperation() {
      return { status: 200, body: ++looks < 5 ? running : OPERATION };
    },
  });
  const { code, text } = await onTerminal('howdah service stop orders --confirm orders', env);
  expect(code).toBe(0);
  // The steps under way, each drawn over the last one, and then the finished steps.
  expect(
    text.match(new RegExp(`stop PostgreSQL [0-9.]+ m?s\\r${ESCAPE}\\[K`, 'g'))?.length,
  ).toBeGreaterThan(1);
  expect(text).toContain(`${ESCAPE}[32m✓${ESCAPE}[39m start PostgreSQL`);
  expect(
    (await onTerminal('howdah service start orders', { ...env, NO_COLOR: '1' })).text,
  ).not.toContain(`${ESCAPE}[32m`);
  // A CI that says so is no terminal.
  const plain = await howdah(['service', 'start', 'orders'], { ...env, CI: 'true' });
  expect(plain.stdout + plain.stderr).not.toContain(ESCAPE);
  expect((await run('service', 'get', 'nothing-like-it')).stderr).toMatch(/^error: /);
});

test('-o env is safe for a shell, whatever the names are', async () => {
  const { env } = await api();
  const { stdout } = await shell(
    'sh',
    'eval "$(howdah service list -o env)"; printf %s "$SERVICE_1_NAME"',
    env,
  );
  expect(stdout).toBe(PLAIN_SERVICE.name);
  const named = await shell(
    'sh',
    'eval "$(howdah url orders -o env)"; printf %s "$PGPORT $DATABASE_URL"',
    env,
  );
  expect(named.stdout).toBe('20000 postgres://tsdbadmin@127.0.0.1:20000/tsdb?sslmode=require');
});

test('logs --follow prints existing lines, then new ones, each once', async () => {
  const line = (second: number, message: string) => ({
    timestamp: `2026-01-31T12:00:0${second}.000Z`,
    message,
    severity: 'LOG',
  });
  const page = (...entries: ReturnType<typeof line>[]): Answer => ({
    status: 200,
    body: { logs: [], entries },
  });
  const answers: Record<string, Answer> = {
    getServiceLogs: page(line(1, 'second'), line(0, 'first')),
  };
  const { env } = await api(answers);
  const child = spawn(process.execPath, [HOWDAH, 'logs', 'orders', '--follow'], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (said += text));
  const messages = () =>
    said
      .trim()
      .split('\n')
      .map((text) => text.split(': ')[1]);
  await untilExpected('the first two lines are printed', () =>
    expect(messages()).toEqual(['first', 'second']),
  );
  // Written by processes side by side: an older line comes late, and a line comes twice because it
  // was said twice.
  answers['getServiceLogs'] = page(
    line(2, 'third'),
    line(1, 'second'),
    line(1, 'second'),
    line(0, 'late'),
    line(0, 'first'),
  );
  await untilExpected('the later lines are printed', () =>
    expect(messages()).toEqual(['first', 'second', 'late', 'second', 'third']),
  );
  child.kill('SIGINT');
  await once(child, 'close');
});

test('completion offers commands, options, values of options and names', async () => {
  const twin = { ...PLAIN_SERVICE, name: 'twin' };
  const twins = [SERVICE, twin, { ...twin, service_id: 'zzzzzzzzzz' }];
  const { run, env } = await api({ listServices: { status: 200, body: twins } });
  const offered = async (...words: string[]) =>
    (await run('__complete', '--', ...words)).stdout
      .split('\n')
      .flatMap((text) => text.split('\t', 1))
      .filter((text) => text !== '');
  expect(await offered('serv')).toEqual(['service']);
  const all = ['restore', 'recover', 'reset', 'restart', 'resize', 'rename'];
  expect(await offered('service', 're')).toEqual(all);
  expect(await offered('service', 'resize', '--m')).toEqual(['--memory-gbs']);
  expect(await offered('service', 'get', '')).toEqual(['orders', 'mq45ho2ud1', 'zzzzzzzzzz']);
  expect(await offered('service', 'attach-vpc', 'orders', '')).toEqual(['office', 'warehouse']);
  expect(await offered('peering', 'get', 'office', '')).toEqual(['warehouse']);
  expect(await offered('service', 'create', '--vpc', 'o')).toEqual(['office']);
  expect(await offered('service', 'create', '-o', '')).toEqual(['table', 'json', 'yaml', 'env']);
  expect(await offered('replica-set', 'get', 'orders', '')).toEqual(['readers']);
  expect(await offered('service', 'set-environment', 'orders', 'P')).toEqual(['PROD']);
  expect(await offered('completion', '')).toEqual(['bash', 'zsh', 'fish']);
  expect(await offered('service', 'create', '--name', '')).toEqual([]);
  expect(await offered('')).not.toContain('__complete');
  // By a shell, as a person has it.
  const bash =
    'eval "$(howdah completion bash)"; COMP_WORDS=(howdah service get or); COMP_CWORD=3; ' +
    '_howdah howdah; printf "%s\\n" "${COMPREPLY[@]}"';
  expect(await shell('bash', bash, env)).toEqual({ code: 0, stdout: 'orders\n', stderr: '' });
});

test('completion prints nothing without an API', async () => {
  const outcome = await howdah(['__complete', '--', 'service', 'get', ''], {
    HOWDAH_HOME: join(bin, 'none'),
  });
  expect(outcome).toEqual({ code: 0, stdout: '', stderr: '' });
});

test('a peering that reaches nothing fails, and a pending one says what is missing', async () => {
  const create = ['peering', 'create', 'office', '--peer', '1999'];
  const invalid = { ...peering, status: 'invalid', error_message: 'there is no VPC 1999' };
  const wrong = await api({ createPeering: { status: 201, body: invalid } });
  const refused = await wrong.run(...create);
  expect(refused.code).toBe(5);
  expect(refused.stderr).toContain('there is no VPC 1999');
  expect(refused.stderr).toContain('howdah peering delete office warehouse');
  const pending = await api({
    createPeering: { status: 201, body: { ...peering, status: 'pending' } },
  });
  const asked = await pending.run(...create, '--project', 'zzzzzzzzzz');
  expect(asked.code).toBe(0);
  expect(asked.stderr).toContain('howdah peering create 1002 --peer 1001 --project n765kku04j');
});
