// @module-tag slow
/**
 * The machine goes down: the disk is copied at one moment, as it is and without the pages that the
 * kernel has still to write, and an installation is started on the copy as after a boot. It has all
 * writes that were acknowledged before that moment.
 */
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, statfs, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { messageOf } from '@howdah/contract/thrown';
import { describe, expect, test } from 'vitest';
import { connectTo, install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { killPrimary, untilConnected, untilRedundant, type ServiceAccess } from './ha-load.ts';
import { currentBoot, findProgram, isMounted, run, unmount } from './probe.ts';

const GIB = 1024 ** 3;
const KINDS = ['ext4', 'btrfs', 'xfs'] as const;

/** Why no disk can be had here; null: one can. */
async function whyNone(): Promise<string | null> {
  if (process.getuid?.() !== 0) return 'it takes root';
  const { bavail, bsize } = await statfs(tmpdir());
  if (bavail * bsize < 8 * GIB) return `${tmpdir()} has less than 8 GB free; TMPDIR names another`;
  try {
    for (const kind of KINDS) await (await makeDisks(kind)).remove();
    return null;
  } catch (error) {
    return messageOf(error);
  }
}

/** A disk that can be copied at one moment: its image stands on an XFS, in an image itself. */
async function makeDisks(kind: (typeof KINDS)[number]) {
  const directory = await mkdtemp(join(tmpdir(), 'hd-cut-'));
  await chmod(directory, 0o755);
  const [host, below, mounted] = [
    join(directory, 'host'),
    join(directory, 'below'),
    join(directory, 'disk'),
  ];
  const image = (name: string): string => join(below, name);
  const remove = async (): Promise<void> => {
    // Servers of other tests have mounts of their own, with a copy of those of their start.
    for (const mount of [mounted, below])
      if (await isMounted(mount)) await run('umount', ['--lazy', mount]);
    await rm(directory, { recursive: true });
  };
  try {
    await mkdir(below);
    await mkdir(mounted);
    await run('truncate', ['-s', '16G', host]);
    await run('mkfs.xfs', ['-q', host]);
    await run('mount', ['-o', 'loop', host, below]);
    await run('truncate', ['-s', '4G', image('running')]);
    await run(`mkfs.${kind}`, ['-q', image('running')]);
    await run('mount', ['-o', 'loop', image('running'), mounted]);
  } catch (error) {
    await remove();
    throw error;
  }
  return {
    mounted,
    copy: (name: string) => run('cp', ['--reflink=always', image('running'), image(name)]),
    /** Puts a copy in place of the disk. */
    swap: async (name: string): Promise<void> => {
      await unmount(mounted);
      // The copy has the same UUID as the disk, which such a mount may still hold.
      const options = kind === 'xfs' ? 'loop,nouuid' : 'loop';
      await run('mount', ['-o', options, image(name), mounted]);
    },
    remove,
  };
}

/** Has the files that name the boot in which they were made name another one. */
async function reboot(services: string): Promise<void> {
  const boot = await currentBoot();
  const files = (await readdir(services, { recursive: true })).filter((path) =>
    /(^|\/)(howdah\.json|seeded)$/.test(path),
  );
  for (const path of files) {
    const text = await readFile(join(services, path), 'utf8');
    await writeFile(join(services, path), text.replaceAll(boot, 'the one before'));
  }
}

async function forkOf(
  running: Installation,
  parent: Service,
  body: object,
): Promise<ServiceAccess> {
  const { body: answer } = await running.request(
    'POST',
    `/services/${parent.service_id}/forkService`,
    body,
  );
  const { service_id, initial_password } = Object(answer);
  return {
    ...(await running.until(String(service_id), 'READY')),
    initial_password: String(initial_password),
  };
}

const none = await whyNone();
if (none !== null) process.stderr.write(`power-cut.test.ts is skipped: ${none}\n`);
const replicas = (await findProgram('haproxy')) !== null;

describe.runIf(none === null)('acknowledged writes are there after the machine went down', () => {
  test.each(KINDS)('on %s', survivesPowerCut);

  async function survivesPowerCut(kind: (typeof KINDS)[number]): Promise<void> {
    const disks = await makeDisks(kind);
    let cloud: Installation | null = null;
    try {
      const home = join(disks.mounted, 'home');
      await mkdir(home);
      const running = (cloud = await install({
        HOWDAH_HOME: home,
        HOWDAH_FAILOVER_COOLDOWN_SECONDS: '0',
      }));
      /** Writes a row to a service, then copies the disk at once. */
      const cuts: { name: string; service: ServiceAccess; rows: number }[] = [];
      const writeAndCut = async (name: string, service: ServiceAccess): Promise<void> => {
        const client = await untilConnected(running, service);
        await client.query('create table if not exists t (n integer)');
        const { rows } = await client.query<{ rows: number }>(
          'with added as (insert into t values (1)) select count(*)::int + 1 as rows from t',
        );
        await disks.copy(name);
        await client.end();
        cuts.push({ name, service, rows: rows[0]?.rows ?? NaN });
      };

      const parent = await running.create({ name: 'parent', service_type: 'POSTGRES' });
      await writeAndCut('a service', parent);
      await writeAndCut('a fork of now', await forkOf(running, parent, { fork_strategy: 'NOW' }));
      await writeAndCut(
        'a fork of its initial snapshot',
        await forkOf(running, parent, { fork_strategy: 'LAST_SNAPSHOT' }),
      );
      await writeAndCut(
        'a fork of a moment',
        await forkOf(running, parent, {
          fork_strategy: 'PITR',
          target_time: new Date().toISOString(),
        }),
      );
      if (replicas) {
        const pair = await running.create({
          name: 'pair',
          service_type: 'POSTGRES',
          replica_count: 1,
          sync_replica_count: 1,
        });
        await writeAndCut('a pair', pair);
        await killPrimary(running, pair);
        await writeAndCut('a pair after a failover', pair);
        await untilRedundant(running, pair, 1, 1);
        await writeAndCut('a pair, whole again', pair);
        // While nobody else follows, the third is made: writes need not wait for one that is not
        // there.
        await running.request('POST', `/services/${pair.service_id}/setHA`, {
          replica_count: 2,
          sync_replica_count: 2,
        });
        await untilRedundant(running, pair, 2, 2);
        await writeAndCut('three, of which two are waited for', pair);
      }

      for (const { name, service, rows } of cuts) {
        expect((await running.stop('SIGTERM'), await running.cli('down', '--databases')).code).toBe(
          0,
        );
        await disks.swap(name);
        await reboot(join(home, 'data', 'services'));
        await running.up();
        await running.until(service.service_id, 'READY');
        const client = await connectTo(running, service, service.initial_password);
        expect(
          (await client.query<{ rows: number }>('select count(*)::int as rows from t')).rows,
          name,
        ).toEqual([{ rows }]);
        await client.end();
        expect(await running.audit(), name).toEqual([]);
      }
    } finally {
      await cloud?.destroy().catch(() => []);
      await disks.remove();
    }
  }
});
