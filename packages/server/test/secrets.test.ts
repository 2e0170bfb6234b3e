/**
 * Passwords and keys that are known, through everything that takes one, and then looked for in
 * everything that is left behind. The control plane's log has no level that is left out here;
 * PostgreSQL, the metadata database's and the service's, logs every statement.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { readdir, readFile, readlink, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Client } from 'pg';
import { connectTo, install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { CONTROL_ROLE, createLayout, findProgram } from './probe.ts';

const pgbouncer = await findProgram('pgbouncer');

let cloud: Installation;
beforeAll(async () => {
  cloud = await install({ HOWDAH_SPARES: '1' });
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

/** The secrets that must appear nowhere, by name. */
const secrets = new Map<string, string>();
/** Every answer that came back, but those that exist to give out a secret. */
const answers: string[] = [];

async function call(
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
  tells = false,
): Promise<{ status: number; body: object }> {
  const response = await fetch(`${cloud.apiUrl}${path}`, {
    method,
    headers: {
      Authorization: `Bearer ${cloud.key}`,
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const text = await response.text();
  if (!tells) answers.push(text, JSON.stringify([...response.headers]));
  return { status: response.status, body: text.startsWith('{') ? Object(JSON.parse(text)) : {} };
}
const canary = (what: string): string => {
  const made = `canary${randomBytes(12).toString('hex')}`;
  secrets.set(what, made);
  return made;
};
const secretIn = (what: string, { body }: { body: object }, field: string): string => {
  const found = String(Reflect.get(body, field));
  expect(found.length).toBeGreaterThan(20);
  secrets.set(what, found);
  return found;
};

/** Has a server of ours log all that it can, from now on. */
async function makeTalkative(host: string, port: number): Promise<void> {
  const client = new Client({ host, port, user: CONTROL_ROLE, database: 'template1' });
  await client.connect();
  for (const setting of [
    "log_statement = 'all'",
    'log_min_duration_statement = 0',
    'log_min_messages = debug1',
    'log_connections = on',
  ])
    await client.query(`alter system set ${setting}`);
  await client.query('select pg_reload_conf()');
  await client.end();
}

/**
 * The files below a directory, and what else is not a directory there, which cannot be read, is
 * passed over.
 */
async function filesBelow(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { withFileTypes: true });
  const found = await Promise.all(
    entries.map(async (entry) => {
      const path = join(directory, entry.name);
      if (entry.isDirectory()) return filesBelow(path);
      if (entry.isSymbolicLink())
        return (await stat(path).catch(() => null))?.isDirectory() === true
          ? filesBelow(await readlink(path))
          : [];
      return entry.isFile() ? [path] : [];
    }),
  );
  return found.flat();
}

async function everyLineOf(directory: string): Promise<string> {
  return (
    await Promise.all((await filesBelow(directory)).map((path) => readFile(path, 'utf8')))
  ).join('\n');
}

/** The places of each secret in some bytes, whatever else they hold. */
function hitsIn(where: string, bytes: Buffer): string[] {
  return [...secrets].flatMap(([what, secret]) => {
    const spellings = [
      secret,
      Buffer.from(secret).toString('base64').replace(/=+$/, ''),
      Buffer.from(secret).toString('hex'),
    ];
    return spellings.some((spelling) => bytes.includes(spelling)) ? [`${what} in ${where}`] : [];
  });
}

/** Command lines and environments of every process that we may look at. */
async function processes(): Promise<string[]> {
  const pids = (await readdir('/proc')).filter(
    (name) => /^\d+$/.test(name) && name !== String(process.pid),
  );
  const hits = await Promise.all(
    pids.flatMap((pid) =>
      ['cmdline', 'environ'].map(async (file) =>
        hitsIn(
          `/proc/${pid}/${file}`,
          await readFile(`/proc/${pid}/${file}`).catch(() => Buffer.alloc(0)),
        ),
      ),
    ),
  );
  return hits.flat();
}

/** Calls that are accepted. @param look is called while secrets are on their way */
async function makeGoodCalls(project: string, look: () => Promise<void>) {
  const idempotencyKey = canary('an Idempotency-Key');
  const create = await call(
    'POST',
    `${project}/services`,
    { name: 'x', enable_pooler: pgbouncer !== null, service_type: 'POSTGRES' },
    { 'Idempotency-Key': idempotencyKey },
    true,
  );
  const initial = secretIn('an initial password', create, 'initial_password');
  const id = String(Reflect.get(create.body, 'service_id'));
  await look();
  const service = await cloud.until(id, 'READY');
  await call(
    'POST',
    `${project}/services`,
    { name: 'x', enable_pooler: pgbouncer !== null, service_type: 'POSTGRES' },
    { 'Idempotency-Key': idempotencyKey },
    true,
  );
  await (await connectTo(cloud, service, initial)).end();
  const layout = createLayout(join(cloud.home, 'data'));
  await makeTalkative(layout.service(id).socket, service.endpoint.port);
  const password = canary('a new password');
  expect(
    (
      await call(
        'POST',
        `${project}/services/${id}/updatePassword`,
        { password },
        { 'Idempotency-Key': randomUUID() },
      )
    ).status,
  ).toBe(204);
  await look();
  await (await connectTo(cloud, service, password)).end();
  const fork = await call(
    'POST',
    `${project}/services/${id}/forkService`,
    { fork_strategy: 'NOW' },
    {},
    true,
  );
  secretIn('the password of a fork', fork, 'initial_password');
  await look();
  const forkId = String(Reflect.get(fork.body, 'service_id'));
  await cloud.until(forkId, 'READY');
  const key = await call(
    'POST',
    `${project}/keys`,
    { name: 'x', role: 'admin' },
    { 'Idempotency-Key': randomUUID() },
    true,
  );
  const secret = secretIn('a key', key, 'secret_key');
  const publicKey = String(Reflect.get(key.body, 'public_key'));
  await call('GET', `${project}/keys`, undefined, {
    Authorization: `Bearer ${publicKey}:${secret}`,
  });
  await call('GET', '/auth/info', undefined, {
    Authorization: `Basic ${Buffer.from(`${publicKey}:${secret}`).toString('base64')}`,
  });
  await cloud.cli('service', 'list');
  return { id, service, forkId, publicKey };
}

/** Calls that are refused, are malformed, or have a secret in the wrong place. */
async function makeBadCalls(project: string, service: Service, publicKey: string): Promise<void> {
  const id = service.service_id;
  await call('GET', '/projects', undefined, {
    Authorization: `Bearer ${publicKey}:${canary('a wrong key')}`,
  });
  await call('GET', '/projects', undefined, {
    Authorization: `Bearer ${canary('a malformed key')}`,
  });
  await call('GET', '/projects', undefined, {
    Authorization: `Token x:${canary('a key of another scheme')}`,
  });
  const update = `${project}/services/${id}/updatePassword`;
  await call('POST', update, { password: `${canary('a password with a control character')}\n` });
  await call('POST', update, {
    password: `${canary('a password that is too long')}${'x'.repeat(200)}`,
  });
  await call('POST', update, { password: [canary('a password in a list')] });
  await call('POST', update, { password: { value: canary('a password in an object') } });
  await call('POST', update, `{"password": "${canary('a password in a body that is no JSON')}`);
  await call('POST', `${project}/services/nosuchidxx/updatePassword`, {
    password: canary('a password for nobody'),
  });
  await call(
    'POST',
    update,
    { password: canary('a password of a wrong key') },
    { Authorization: 'Bearer x:y' },
  );
  await call('POST', `${update}?dry_run=true`, {
    password: canary('a password that was only asked about'),
  });
  await (await connectTo(cloud, service, canary('a wrong password')).catch(() => null))?.end();
}

/** The secrets found in the files of the installation, which is down, and the number of files. */
async function searchFiles(id: string): Promise<{ hits: string[]; files: number }> {
  const layout = createLayout(join(cloud.home, 'data'));
  const data = await readlink(join(cloud.home, 'data')).catch(() => join(cloud.home, 'data'));
  const files = (await Promise.all([filesBelow(cloud.home), filesBelow(data)])).flat();
  expect(files.filter((path) => path.includes('/store/data/base/')).length).toBeGreaterThan(100);
  expect(files.some((path) => path.endsWith('control.log'))).toBe(true);
  for (const { logs } of [layout.store, layout.service(id)])
    expect(await everyLineOf(logs)).toMatch(/statement: |execute /);
  const hits: string[] = [];
  for (const path of new Set(files)) {
    const found = hitsIn(path, await readFile(path).catch(() => Buffer.alloc(0)));
    // The one file that is there to hold a key, for its owner alone.
    if (path === join(cloud.home, 'credentials.json'))
      expect(found).toEqual([`the first key in ${path}`]);
    else hits.push(...found);
  }
  expect((await stat(join(cloud.home, 'credentials.json'))).mode & 0o077).toBe(0);
  return { hits, files: new Set(files).size };
}

test('no secret is in logs, answers, processes, metrics or files', { tags: 'slow' }, async () => {
  const project = `/projects/${cloud.projectId}`;
  secrets.set('the first key', cloud.key.split(':')[1] ?? '');
  const fromProcesses: string[] = [];
  const layout = createLayout(join(cloud.home, 'data'));
  await makeTalkative(layout.store.socket, 5432);
  const look = async (): Promise<void> => void fromProcesses.push(...(await processes()));

  const { id, service, forkId, publicKey } = await makeGoodCalls(project, look);
  await makeBadCalls(project, service, publicKey);

  // Whatever is written when something dies, too.
  await call('POST', `${project}/services/${id}/resize`, { cpu_millis: '1000' });
  await call('DELETE', `${project}/keys/${publicKey}`);
  const metrics = await (await fetch(`http://127.0.0.1:${cloud.port}/metrics`)).text();
  await look();
  await cloud.stop('SIGKILL');
  await cloud.up();
  await cloud.until(id, 'READY');
  for (const path of [
    '',
    '/operations',
    `/services/${id}`,
    `/services/${id}/logs`,
    '/services',
    '/keys',
    `/services/${forkId}/logs`,
  ])
    await call('GET', `${project}${path}`);
  // The metadata database writes its memory to its files.
  await cloud.stop('SIGTERM');
  try {
    const { hits, files } = await searchFiles(id);
    hits.push(
      ...hitsIn('an answer', Buffer.from(answers.join('\n'))),
      ...hitsIn('the metrics', Buffer.from(metrics)),
      ...hitsIn('what howdah up prints', Buffer.from(cloud.output.join(''))),
    );
    process.stdout.write(
      `${hits.length + fromProcesses.length} hits of ${secrets.size} secrets in ` +
        `${files} files, ${answers.length} answers, metrics, output and processes\n`,
    );
    expect([...new Set([...hits, ...fromProcesses])]).toEqual([]);
    expect(secrets.size).toBeGreaterThan(12);
  } finally {
    // Whatever was found: what serves can be ended and removed.
    await cloud.up();
  }
});
