/** Starts that cannot be: they end with a message, and leave nothing running. */
import { once } from 'node:events';
import { chmod, readdir, readFile, realpath, rm, truncate } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { HOWDAH, install, type Installation } from './harness.ts';
import { run, signal } from './probe.ts';
import { untilExpected } from './until.ts';

test(
  'a start whose port is taken ends with a message, and the next one finds all as it was',
  { tags: 'slow' },
  async () => {
    const cloud = await install();
    const service = await cloud.create({ name: 'stays', service_type: 'POSTGRES' });
    await cloud.stop('SIGTERM');
    const other = createServer().listen(cloud.port, '127.0.0.1');
    await once(other, 'listening');
    const { code, stderr } = await cloud.cli('up');
    expect(stderr).toContain(`port ${cloud.port} of 127.0.0.1 is taken by another program`);
    expect(code).toBe(1);
    other.close();
    await once(other, 'close');
    await cloud.up();
    await cloud.until(service.service_id, 'READY');
    expect(await cloud.destroy()).toEqual([]);
  },
);

test.runIf(process.getuid?.() === 0)(
  'a start under umask 077 makes files that servers can read, and repairs incomplete ones',
  async () => {
    const cloud = await install({}, ['sh', '-c', 'umask 077; exec "$@"', 'sh']);
    const data = await realpath(join(cloud.home, 'data'));
    await cloud.cli('down', '--databases');
    // A start of an older release under this umask left them so.
    const installations = join(data, 'postgres');
    const copies = (await readdir(installations)).map((name) => join(installations, name));
    const closed = [data, join(data, 'rootfs'), join(data, 'rootfs', 'proc'), installations];
    for (const path of [...closed, ...copies]) await chmod(path, 0o700);
    for (const copy of copies) await truncate(join(copy, 'bin', 'initdb'), 1000);
    await rm(join(data, 'templates'), { recursive: true });
    await cloud.up();
    const service = await cloud.create({ name: 'made', service_type: 'POSTGRES' });
    await cloud.until(service.service_id, 'READY');
    expect(await cloud.destroy()).toEqual([]);
  },
);

/** Those that Docker leaves to root. */
const OF_CONTAINERS = [
  '-all',
  'chown',
  'dac_override',
  'fowner',
  'fsetid',
  'kill',
  'setgid',
  'setuid',
  'setpcap',
  'net_bind_service',
  'net_raw',
  'sys_chroot',
  'mknod',
  'audit_write',
  'setfcap',
].join(',+');

test.runIf(process.getuid?.() === 0)(
  'root with the capabilities of a container finds, restarts and stops its servers',
  async () => {
    const within = ['setpriv', `--bounding-set=${OF_CONTAINERS}`, '--inh-caps=-all'] as const;
    const cloud = await install({}, within);
    const service = await cloud.create({
      name: 'contained',
      service_type: 'POSTGRES',
      enable_pooler: true,
    });
    await cloud.until(service.service_id, 'READY');
    const before = await serverOf(cloud, service.service_id);
    signal(before, 'SIGKILL');
    await untilExpected('another server runs', async () =>
      expect(await serverOf(cloud, service.service_id)).not.toBe(before),
    );
    await cloud.until(service.service_id, 'READY');
    const howdah = async (command: string): Promise<string> => {
      const [program, ...words] = [...within, process.execPath, HOWDAH, command] as const;
      return run(program, words, { env: cloud.env });
    };
    expect(await howdah('audit')).toContain('No problems found');
    expect(await howdah('doctor')).toMatch(/capabilities.*CAP_SYS_PTRACE/);
    await cloud.stop('SIGTERM');
    await cloud.up();
    expect(await cloud.destroy()).toEqual([]);
  },
);

/** The pid that root has noted for the server of a service. */
async function serverOf({ home }: Installation, id: string): Promise<number> {
  return Number(await readFile(join(home, 'data', 'services', id, 'pid'), 'utf8'));
}
