/**
 * Leftovers of killed programs and of installations that are gone: `howdah audit` finds them, and
 * names the command that removes them. As root.
 */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chown, mkdir, mkdtemp, readdir, rm, truncate, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { HOWDAH, install, makeHome, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import {
  allowEgress,
  DEFAULT_UID_RANGE,
  type Machine,
  prepareMachine,
  refuseEgress,
  rootsOf,
  tableOf,
} from './probe.ts';
import { untilExpected } from './until.ts';

const execute = promisify(execFile);
const isRoot = process.getuid?.() === 0;
const hex = (bytes: number): string => randomBytes(bytes).toString('hex');
const hourAgo = (): Date => new Date(Date.now() - 3_600_000);

let cloud: Installation;
let machine: Machine;
let service: Service;

/** The lines of `howdah audit` about something. */
async function findings(name: string): Promise<string[]> {
  return (await cloud.cli('audit')).stdout.split('\n').filter((line) => line.includes(name));
}

/** Where the cgroups of installations are; none: there are none here. */
function groupParents({ limits }: Machine): string[] {
  return rootsOf(limits).map((root) => dirname(root));
}

/**
 * Plants something, expects one finding that names it, runs the command of the finding, and expects
 * none.
 */
async function isFound(
  name: string,
  sentence: RegExp,
  plant: () => Promise<unknown>,
): Promise<void> {
  expect(await findings(name)).toEqual([]);
  await plant();
  const [line = '', ...more] = await findings(name);
  expect(line).toMatch(sentence);
  expect(more).toEqual([]);
  await execute('sh', ['-c', line.slice(line.lastIndexOf(': ') + 2)]);
  expect(await findings(name)).toEqual([]);
}

describe.skipIf(!isRoot)('as root', () => {
  beforeAll(async () => {
    cloud = await install();
    machine = await prepareMachine(cloud.home);
    service = await cloud.create({ name: 'runs', service_type: 'POSTGRES' });
  });
  afterAll(async () => {
    expect(await cloud?.destroy()).toEqual([]);
  });

  test('shared memory of a killed server, and lists of mounts', { tags: 'slow' }, async () => {
    const segment = `PostgreSQL.${randomBytes(4).readUInt32LE()}`;
    await isFound(
      segment,
      /^shared memory of user 89998 belongs to no running server/,
      async () => {
        await writeFile(`/dev/shm/${segment}`, '');
        await chown(`/dev/shm/${segment}`, 89_998, 89_998);
        await utimes(`/dev/shm/${segment}`, hourAgo(), hourAgo());
      },
    );
    const list = `howdah-${hex(8)}`;
    await isFound(list, /a list of mounts, is of a start that was interrupted/, async () => {
      await writeFile(`/dev/shm/${list}`, '');
      await utimes(`/dev/shm/${list}`, hourAgo(), hourAgo());
    });
  });

  test('cgroups of services and of installations that are gone', async (context) => {
    const { limits } = machine;
    if (limits.kind === 'none') return context.skip(limits.why);
    const parents = groupParents(machine);
    await untilExpected('each parent cgroup has the group of the service', () =>
      expect(
        parents.every((parent) =>
          existsSync(join(parent, tableOf(machine.networkPrefix), service.service_id)),
        ),
      ).toBe(true),
    );
    await isFound(
      'zzzzzzzzzz',
      /^cgroup of zzzzzzzzzz, which the metadata database does not know: rmdir /,
      async () => {
        for (const parent of parents)
          await mkdir(join(parent, tableOf(machine.networkPrefix), 'zzzzzzzzzz'));
      },
    );
    const group = `howdah-${hex(4)}`;
    await isFound(
      group,
      /has no process and belongs to no installation that is known here/,
      async () => {
        for (const parent of parents) {
          await mkdir(join(parent, group, 'abcdefghij'), { recursive: true });
          await utimes(join(parent, group), hourAgo(), hourAgo());
        }
      },
    );
    // Those of this one stay out of it.
    expect(await findings(tableOf(machine.networkPrefix))).toEqual([]);
  });

  test('packet filters of installations that are gone, and a missing one', async (context) => {
    const { refused, note } = machine.egress;
    if (!refused) return context.skip(note);
    const name = `howdah-${hex(4)}`;
    await isFound(
      name,
      /belongs to an installation that no longer exists; its data was in \/nowhere\/data/,
      () => refuseEgress(name, '/nowhere/data', [89_998, 89_999]),
    );
    const own = tableOf(machine.networkPrefix);
    // The control plane puts it back every minute, so now and then before it is looked for.
    const untilFound = (what: string, change: () => Promise<void>, finding: RegExp) =>
      untilExpected(`${what} is found`, async () => {
        await change();
        expect(await findings(own)).toEqual([expect.stringMatching(finding)]);
      });
    await untilFound(
      'a missing packet filter',
      () => allowEgress(own),
      /does not hold services back: it is missing; howdah down/,
    );
    await untilFound(
      'a packet filter for other users',
      () => refuseEgress(own, machine.layout.root, [89_998, 89_999]),
      /it lets user \d+ send what is not TCP/,
    );
    await refuseEgress(own, machine.layout.root, DEFAULT_UID_RANGE);
    expect(await findings(own)).toEqual([]);
  });

  test('networks of installations that are gone', async (context) => {
    const { method, note } = machine.networks;
    if (method !== 'bridge') return context.skip(note);
    const name = `howdah-${hex(4)}-1000`;
    await isFound(name, /^network .* belongs to an installation that no longer exists/, () =>
      execute('ip', ['netns', 'add', name]),
    );
  });

  test('store images whose file is deleted', async (context) => {
    const directory = await mkdtemp(join(tmpdir(), 'howdah-image-'));
    try {
      const image = join(directory, 'data.img');
      await writeFile(image, '');
      await truncate(image, 1024 ** 2);
      const attached = await execute('losetup', ['--find', '--show', image]).catch(() => null);
      if (attached === null) return context.skip('no loop devices here');
      await isFound(
        image,
        new RegExp(`^${attached.stdout.trim()} holds the store image .*, which is deleted: `),
        () => rm(image),
      );
    } finally {
      await rm(directory, { recursive: true });
    }
  });

  test('looking at a home makes no cgroup of it', async () => {
    const home = await makeHome();
    try {
      const seen = await prepareMachine(home);
      for (const parent of groupParents(seen))
        expect(await readdir(parent)).not.toContain(tableOf(seen.networkPrefix));
    } finally {
      await rm(home, { recursive: true });
    }
  });

  test('the doctor makes nothing, not even the register of users', async (context) => {
    const hidden = 'mount -t tmpfs tmpfs /var/lib && "$@" >&2 && find /var/lib -mindepth 1';
    const within = ['unshare', '--mount', '--', 'sh', '-e', '-c', hidden, 'sh'] as const;
    if (machine.sandbox.way === 'none') return context.skip(machine.sandbox.note);
    const env = { ...cloud.env, HOWDAH_HOME: join(cloud.home, 'none') };
    const [program, ...words] = [...within, process.execPath, HOWDAH, 'doctor'];
    const { stdout, stderr } = await execute(program, words, { env });
    expect(stderr).toContain('each service runs as an operating system user of its own');
    expect(stdout).toBe('');
    expect(existsSync(join(cloud.home, 'none'))).toBe(false);
  });
});
