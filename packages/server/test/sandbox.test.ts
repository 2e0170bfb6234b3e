/** The processes, files and networks that the server of a service can reach, and its leftovers. */
import { readdirSync, readlinkSync } from 'node:fs';
import { copyFile, readFile, readdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectTo, install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import {
  allowEgress,
  CONTROL_ROLE,
  DEFAULT_UID_RANGE,
  findServer,
  type InstancePaths,
  isEgressRefused,
  type Machine,
  prepareMachine,
  run,
  tableOf,
  workingDirectoryOf,
} from './probe.ts';
import { untilExpected } from './until.ts';

let cloud: Installation;
let machine: Machine;
let service: Awaited<ReturnType<Installation['create']>>;
let other: Service;

beforeAll(async () => {
  cloud = await install();
  machine = await prepareMachine(cloud.home);
  service = await cloud.create({ name: 'tried', service_type: 'POSTGRES', enable_pooler: true });
  other = await cloud.create({ name: 'other', service_type: 'POSTGRES' });
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

const pathsOf = ({ service_id: id }: Service): InstancePaths => machine.layout.service(id);

async function pidOf(of: Service): Promise<number> {
  const server = await findServer(pathsOf(of));
  if (server === null) throw new Error(`no server of ${of.service_id} runs`);
  return server.postmaster.pid;
}

/** The output of a program that the server starts: it has the view and the user of the server. */
async function inside(of: Service, script: string): Promise<string> {
  const output = join(pathsOf(of).data, 'said');
  await asSuperuser(
    of,
    'copy (select 1) to program ' +
      `$program$cat >/dev/null; { ${script}; } >${output} 2>&1 || :$program$`,
  );
  return readFile(output, 'utf8');
}

/** @returns the rows of each statement */
async function asSuperuser(of: Service, statement: string): Promise<unknown[][]> {
  const { socket } = pathsOf(of);
  const client = new Client({
    host: socket,
    port: of.endpoint.port,
    user: CONTROL_ROLE,
    database: 'postgres',
  });
  client.on('error', () => undefined); // the statement under way gets the error
  await client.connect();
  try {
    const results: unknown = await client.query(statement);
    return (Array.isArray(results) ? results : [results]).map(
      ({ rows }: { rows: unknown[] }) => rows,
    );
  } finally {
    await client.end();
  }
}

/** Why the machine cannot have mount namespaces; null: it can. */
const missing = async (): Promise<string | null> => {
  const { way, note } = (await prepareMachine(cloud.home)).sandbox;
  return way === 'mounts' ? null : note;
};

describe('the file system of a server', () => {
  test('has its own service, and no other, no template, no home', async (context) => {
    const why = await missing();
    if (why !== null) return context.skip(why);
    const { services, root, templates, store } = machine.layout;
    expect((await inside(service, `ls ${services}`)).trim()).toBe(service.service_id);
    const entries = (await inside(service, `ls ${root}`)).split('\n').filter(Boolean);
    expect(entries.filter((entry) => !['services', 'postgres', 'modules'].includes(entry))).toEqual(
      [],
    );
    for (const hidden of [
      pathsOf(other).root,
      templates,
      store.root,
      join(cloud.home, 'credentials.json'),
      join(cloud.home, 'ca'),
    ]) {
      expect(await inside(service, `ls -d ${hidden}`)).toContain('No such file');
    }
    expect(await inside(service, 'ls /')).not.toMatch(/^(home|root|run|sys|srv|mnt|opt|boot)$/m);
    expect((await inside(service, 'ls /old /dev')).split('\n').filter(Boolean).toSorted()).toEqual(
      ['/dev:', '/old:', 'full', 'null', 'random', 'shm', 'urandom', 'zero'].toSorted(),
    );
  });

  test('keeps its users when a program replaces /etc/passwd', async (context) => {
    const why =
      (await missing()) ??
      (machine.isolation.isolated ? null : 'services have no users of their own');
    if (why !== null) return context.skip(why);
    const before = await inside(service, 'cat /etc/passwd /etc/group');
    expect(before).toContain('howdah-service');
    // As useradd does; the contents stay.
    for (const path of ['/etc/passwd', '/etc/group']) {
      await copyFile(path, `${path}.howdah-test`);
      await rename(`${path}.howdah-test`, path);
    }
    expect(await inside(service, 'cat /etc/passwd /etc/group')).toBe(before);
    expect(await inside(service, 'cat /etc/passwd.howdah-test')).toContain('No such file');
  });

  test('is read-only but for its own directories, without programs there', async (context) => {
    const why = await missing();
    if (why !== null) return context.skip(why);
    const { data } = pathsOf(service);
    for (const directory of [
      '/',
      '/usr',
      '/etc',
      '/dev',
      machine.layout.services,
      pathsOf(service).config,
    ]) {
      expect(await inside(service, `touch ${directory}/tried`)).toMatch(
        /Read-only file system|Permission denied/,
      );
    }
    expect(
      await inside(
        service,
        `cp /bin/true ${data}/program && chmod 700 ${data}/program && ${data}/program`,
      ),
    ).toContain('Permission denied');
    expect(
      await inside(
        service,
        `cp /bin/true /tmp/program; /tmp/program && echo ran; rm ${data}/program /tmp/program`,
      ),
    ).not.toContain('ran');
  });

  test('has a private /tmp, /proc and /dev/shm that suit parallel queries', async (context) => {
    const why = await missing();
    if (why !== null) return context.skip(why);
    const name = `howdah-test-${process.pid}`;
    await inside(service, `touch /tmp/${name} /var/tmp/${name} /dev/shm/${name}`);
    expect(await inside(other, 'ls /tmp /var/tmp')).not.toContain(name);
    expect(await readdir('/tmp')).not.toContain(name);
    expect(readdirSync('/dev/shm')).not.toContain(name);
    const programs = await inside(service, 'cat /proc/[0-9]*/cmdline | tr "\\0" " "');
    expect(programs).toContain(pathsOf(service).data);
    expect(programs).not.toContain(other.service_id);
    expect(programs).not.toContain('howdah.js');
    expect(
      Number((await inside(service, 'df -m --output=size /dev/shm')).split('\n')[1]),
    ).toBeGreaterThanOrEqual(512);
    const [, , planned] = await asSuperuser(
      service,
      `set debug_parallel_query = on; set work_mem = '64MB';
       select count(*)::int as rows from generate_series(1, 300000) as a (n)
         join generate_series(1, 300000) as b (n) using (n)`,
    );
    expect(planned).toEqual([{ rows: 300_000 }]);
  });

  test('is found from outside by its working directory', async () => {
    expect(workingDirectoryOf(await pidOf(service))).toBe(pathsOf(service).data);
  });
});

test('a pooler sees its own service alone, and no process', async (context) => {
  const why = await missing();
  if (why !== null) return context.skip(why);
  const pid = Number(await readFile(pathsOf(service).pooler.pidFile, 'utf8'));
  expect(await readdir(`/proc/${pid}/root${machine.layout.services}`)).toEqual([
    service.service_id,
  ]);
  expect(await readdir(`/proc/${pid}/root/proc`)).toEqual([]);
});

test('a killed server leaves no shared memory behind', async (context) => {
  const why = await missing();
  if (why !== null) return context.skip(why);
  const pid = await pidOf(other);
  const own = readdirSync(`/proc/${pid}/root/dev/shm`).filter((name) =>
    name.startsWith('PostgreSQL'),
  );
  const [, segment] =
    (await readFile(join(pathsOf(other).data, 'postmaster.pid'), 'utf8'))
      .split('\n')[6]
      ?.trim()
      .split(/\s+/) ?? [];
  expect(own.length).toBeGreaterThan(0);
  expect(segment).toMatch(/^\d+$/);
  for (const kind of ['mnt', 'ipc', 'pid'])
    expect(readlinkSync(`/proc/${pid}/ns/${kind}`)).not.toBe(readlinkSync(`/proc/self/ns/${kind}`));
  process.kill(pid, 'SIGKILL');
  await untilExpected('the service has another postmaster', async () =>
    expect(await pidOf(other).catch(() => pid)).not.toBe(pid),
  );
  await cloud.until(other.service_id, 'READY');
  expect(readdirSync('/dev/shm').filter((name) => own.includes(name))).toEqual([]);
  expect(await run('ipcs', ['-m', '-p'])).not.toContain(` ${pid} `);
});

describe('the network of a server', () => {
  const user = DEFAULT_UID_RANGE[0];
  const connectAs = (uid: number, to: string) =>
    run('setpriv', [
      `--reuid=${uid}`,
      `--regid=${uid}`,
      '--clear-groups',
      'bash',
      '-c',
      `echo >/dev/${to}`,
    ]);

  test('reaches neither the API nor another service, by TCP or UDP', async (context) => {
    const { refused, note } = machine.egress;
    if (!refused) return context.skip(note);
    for (const port of [cloud.port, other.endpoint.port, service.endpoint.port]) {
      await expect(connectAs(user, `tcp/127.0.0.1/${port}`)).rejects.toThrow('Connection refused');
      await expect(connectAs(user - 1, `tcp/127.0.0.1/${port}`)).resolves.toBe('');
    }
    await expect(connectAs(user, `udp/127.0.0.1/${cloud.port}`)).rejects.toThrow(
      'Operation not permitted',
    );
    const client = await connectTo(cloud, service, service.initial_password);
    expect((await client.query('select 1 as one')).rows).toEqual([{ one: 1 }]);
    await client.end();
  });

  test('stays closed after the rules were flushed, opens when down', async (context) => {
    const { refused, note } = machine.egress;
    if (!refused) return context.skip(note);
    const table = tableOf(machine.networkPrefix);
    await allowEgress(table);
    expect(await isEgressRefused(table)).toBe(false);
    await cloud.stop('SIGKILL');
    await cloud.up();
    expect(await isEgressRefused(table)).toBe(true);
    await cloud.stop('SIGTERM');
    expect(await cloud.cli('down', '--databases')).toMatchObject({ code: 0 });
    expect(await isEgressRefused(table)).toBe(false);
    await cloud.up();
    await cloud.until(service.service_id, 'READY');
    await cloud.until(other.service_id, 'READY');
  });
});

test(
  'a statement that the memory limit ends is reported with the limit, the peak and a remedy',
  { tags: 'slow' },
  async (context) => {
    const { limits } = machine;
    if (limits.kind === 'none') return context.skip(limits.why);
    const [directory, name] =
      limits.kind === 'v1' ? [limits.memory, 'memory.limit_in_bytes'] : [limits.root, 'memory.max'];
    await untilExpected('the service has a cgroup', async () =>
      expect(await readdir(join(directory, other.service_id)).catch(() => [])).not.toEqual([]),
    );
    await untilExpected('the cgroup has processes', async () =>
      expect(await readFile(join(directory, other.service_id, 'cgroup.procs'), 'utf8')).not.toBe(
        '',
      ),
    );
    await writeFile(join(directory, other.service_id, name), String(128 * 1024 ** 2));
    // The restart puts the limit of the size in force again.
    const query = asSuperuser(
      other,
      "select length(string_agg(repeat('x', 1000), '')) from generate_series(1, 400000)",
    );
    await expect(query).rejects.toThrow(/terminat|closed|reset/i);
    await untilExpected('the service warns of its memory', async () =>
      expect((await cloud.get(other.service_id)).warnings).toEqual([
        {
          code: 'MEMORY',
          message: expect.stringMatching(
            new RegExp(
              String.raw`all of its memory, .* GiB \(peak 0\.1.* ` +
                'resize the service to the next size, lower work_mem',
            ),
          ),
        },
      ]),
    );
  },
);
