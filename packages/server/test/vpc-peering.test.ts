/**
 * Peerings of VPCs: what they join and what they do not, how they are asked for, and how they end.
 */
import { spawn } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import { openMetadata } from './metadata.ts';
import {
  ability,
  anotherProject,
  auditEnds,
  destroyService,
  LONG,
  namespaceOf,
  sh,
  stageNetworks,
  stageRules,
  visit,
  vpcEndpointOf,
  type Net,
} from './vpc.ts';
import { messageOf } from './vpc-calls.ts';
import { untilExpected } from './until.ts';

/** The settings of the kernel that let packets through between networks. */
const SETTINGS = 'grep -H . /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf/*/rp_filter';

/** Hears datagrams. */
async function listen({ within }: Net, address: string) {
  const [program, ...words] = [
    ...within,
    process.execPath,
    '-e',
    `const s = require('node:dgram').createSocket('udp4'); ` +
      `s.on('message', (_, from) => console.log(from.address)); ` +
      `s.bind(${PORT}, '${address}', () => console.log('ready')); ` +
      `process.stdin.once('end', () => process.exit()).resume()`,
  ];
  const child = spawn(program, words, { stdio: ['pipe', 'pipe', 'inherit'] });
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (said += text));
  const lines = () => said.trim().split('\n').slice(1);
  await untilExpected('the other program is ready', () => expect(said).toContain('ready'));
  return {
    /** Who was heard, once an honest sender was, who sends again: a datagram may be lost. */
    until: async (address: string, sendAgain: () => Promise<void>): Promise<string[]> => {
      const heard = async (): Promise<string[]> => {
        if (!lines().includes(address)) await sendAgain();
        return lines();
      };
      await untilExpected('the address of the client is heard', async () =>
        expect(await heard()).toContain(address),
      );
      child.stdin.end();
      return [...new Set(lines())];
    },
  };
}
const PORT = 4000;

/** Sends one datagram. */
async function send({ within }: Net, from: string, to: string): Promise<void> {
  const [program, ...words] = [
    ...within,
    process.execPath,
    '-e',
    `const s = require('node:dgram').createSocket('udp4'); ` +
      `s.bind(0, '${from}', () => s.send('x', ${PORT}, '${to}', () => s.close()))`,
  ];
  await sh(program, words);
}

describe.runIf(ability.method === 'bridge')('bridge', () => {
  const at = stageNetworks();

  test('a peering routes between two VPCs only; ending it ends what is open', async () => {
    const { cloud, own, plugged } = at();
    const [a, b, c] = [
      await own.vpc('10.82.0.0/16'),
      await own.vpc('10.83.0.0/24'),
      await own.vpc('10.84.0.0/28'),
    ];
    const service = await cloud.create({ name: 'shared', service_type: 'POSTGRES', vpc_id: a.id });
    const endpoint = vpcEndpointOf(service);
    const [inB, inC] = [await plugged(b, '10.83.0.200'), await plugged(c, '10.84.0.10')];
    expect((await visit(cloud, service, endpoint, inB)).how).toMatch(/^refused/);
    const peering = await own.peer(a, cloud.projectId, b.id);
    expect(peering).toMatchObject({
      status: 'active',
      provisioned_id: expect.any(String),
      peer_vpc_id: b.id,
    });
    // The other side is written a moment later.
    await untilExpected('the peering is active', async () =>
      expect(await own.peerings(b)).toMatchObject([
        { status: 'active', peer_vpc_id: a.id, provisioned_id: peering.provisioned_id },
      ]),
    );
    const peered = await visit(cloud, service, endpoint, { within: inB.within, patienceMs: LONG });
    expect(peered.how).toBe('in as 10.83.0.200/32');
    // B reaches C as well, and A does not through it.
    await own.peer(b, cloud.projectId, c.id);
    expect((await visit(cloud, service, endpoint, inC)).how).toMatch(/^refused/);
    await auditEnds(cloud);
    const kept = await visit(cloud, service, endpoint, {
      within: (await plugged(a, '10.82.200.1')).within,
      patienceMs: LONG,
    });
    expect(kept.how).toBe('in as 10.82.200.1/32');
    await own.answered(204, 'DELETE', `/vpcs/${a.id}/peerings/${peering.id}`);
    await peered.ends();
    expect(kept.goesOn()).toBe(true);
    expect((await visit(cloud, service, endpoint, inB)).how).toMatch(/^refused/);
    expect((await own.peerings(b)).map(({ peer_vpc_id }) => peer_vpc_id)).toEqual([c.id]);
    await auditEnds(cloud);
    await destroyService(cloud, service);
    for (const vpc of [b, a, c]) await own.remove(vpc);
  });

  test(
    'VPCs of two projects may have the same network, and are peered where both ask for it',
    { tags: 'slow' },
    async () => {
      const { cloud, own, plugged } = at();
      const another = await anotherProject(cloud);
      const [mine, theirs] = [
        await own.vpc('10.85.0.0/16'),
        await another.project.vpc('10.85.0.0/16'),
      ];
      const service = await cloud.create({
        name: 'mine',
        service_type: 'POSTGRES',
        vpc_id: mine.id,
      });
      const endpoint = vpcEndpointOf(service);
      expect(
        (await visit(cloud, service, endpoint, await plugged(theirs, '10.85.200.1'))).how,
      ).toMatch(/^refused/);
      const other = await another.project.vpc('10.86.0.0/16');
      const pending = await own.peer(mine, another.id, other.id);
      expect(pending.status).toBe('pending');
      const inOther = await plugged(other, '10.86.200.1');
      expect((await visit(cloud, service, endpoint, inOther)).how).toMatch(/^refused/);
      expect(await another.project.peer(other, cloud.projectId, mine.id)).toMatchObject({
        status: 'active',
      });
      expect(await own.peering(mine, pending.id)).toMatchObject({ status: 'active' });
      expect(
        (await visit(cloud, service, endpoint, { within: inOther.within, patienceMs: LONG })).how,
      ).toBe('in as 10.86.200.1/32');
      await another.project.remove(other);
      expect(await own.peering(mine, pending.id)).toMatchObject({
        status: 'disabled',
        error_message: expect.stringContaining(another.id),
      });
      await auditEnds(cloud);
      await destroyService(cloud, service);
      await another.project.remove(theirs);
      await own.remove(mine);
    },
  );

  test('a packet with a forged source does not get through; its settings are kept', async () => {
    const { cloud, own, plugged } = at();
    const [a, b, c] = [
      await own.vpc('10.95.0.0/24'),
      await own.vpc('10.96.0.0/24'),
      await own.vpc('10.97.0.0/24'),
    ];
    await own.peer(a, cloud.projectId, b.id);
    await own.peer(a, cloud.projectId, c.id);
    const [inA, inB, alsoInA] = [
      await plugged(a, '10.95.0.200'),
      await plugged(b, '10.96.0.200'),
      await plugged(a, '10.95.0.201'),
    ];
    const network = await namespaceOf(cloud, a);
    /**
     * Which of the senders are heard: one way alone, since no answer would come to an address that
     * is somebody else's.
     */
    const heard = async (
      receiver: Net,
      to: string,
      senders: [Net, string][],
    ): Promise<string[]> => {
      const mailbox = await listen(receiver, to);
      for (const [net, from] of senders) {
        await sh('ip', ['-n', net.name, 'addr', 'replace', `${from}/32`, 'dev', 'lo']);
        await send(net, from, to);
      }
      const [last] = senders.slice(-1);
      if (last === undefined) throw new Error('nobody sends');
      const [honest, address] = last;
      return mailbox.until(address, () => send(honest, address, to));
    };
    // The last is honest: once it is heard, those before it would have been.
    const forged: [Net, string][] = [
      [inB, '10.95.0.77'], // of the network that it comes into
      [inB, '10.97.0.77'], // of one that is on another side
      [inB, '8.8.8.8'], // of none
      [inB, '10.96.0.200'],
    ];
    expect(await heard(inA, '10.95.0.200', forged)).toEqual(['10.96.0.200']);
    // From inside with an address of a peer, to another peer.
    expect(
      await heard(inB, '10.96.0.200', [
        [alsoInA, '10.97.0.77'],
        [alsoInA, '10.95.0.201'],
      ]),
    ).toEqual(['10.95.0.201']);

    const settings = async () =>
      (await sh('nsenter', [`--net=/run/netns/${network}`, '--', 'sh', '-c', SETTINGS])).stdout;
    const kept = await settings();
    expect(kept).toContain(`/proc/sys/net/ipv4/conf/to-${b.id}/rp_filter:1`);
    expect(kept).toMatch(/ip_forward:1\n/);
    expect(kept).not.toMatch(/rp_filter:0\n/);
    await sh('nsenter', [
      `--net=/run/netns/${network}`,
      '--',
      'sh',
      '-c',
      'for f in /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf/*/rp_filter; ' +
        'do echo 0 > $f; done',
    ]);
    expect(await settings()).not.toBe(kept);
    await own.remove(await own.vpc('10.98.0.0/24')); // has all of them looked at
    await untilExpected('the kernel has its settings again', async () =>
      expect(await settings()).toBe(kept),
    );
    expect(await heard(inA, '10.95.0.200', forged)).toEqual(['10.96.0.200']);
    for (const vpc of [a, b, c]) await own.remove(vpc);
  });

  test("nothing of the machine's own network is changed by VPCs", async () => {
    const { cloud, own } = at();
    // Links and addresses of others come and go here; settings and routes by us would not be
    // missed.
    const state = async () => {
      const [forwarding, links, routes] = await Promise.all([
        sh('sh', [
          '-c',
          'grep -H . /proc/sys/net/ipv4/ip_forward ' +
            '/proc/sys/net/ipv4/conf/[adl][elo]*/forwarding ' +
            '/proc/sys/net/ipv4/conf/[adl][elo]*/rp_filter ' +
            '/proc/sys/net/ipv4/conf/all/send_redirects ' +
            '/proc/sys/net/ipv6/conf/[adl][elo]*/disable_ipv6 2>&1 || true',
        ]),
        sh('ip', ['-o', 'link', 'show']),
        sh('ip', ['route', 'show', 'table', 'all']),
      ]);
      const names = links.stdout
        .split('\n')
        .flatMap((line) => /^\d+: (vpc|to-)\S*/.exec(line)?.[0] ?? []);
      return {
        settings: forwarding.stdout,
        names,
        routes: routes.stdout.split('\n').filter((line) => /\b10\.(98|99)\./.test(line)),
      };
    };
    const before = await state();
    const [a, b] = [await own.vpc('10.98.0.0/24'), await own.vpc('10.99.0.0/24')];
    const service = await cloud.create({ name: 'apart', service_type: 'POSTGRES', vpc_id: a.id });
    await own.peer(a, cloud.projectId, b.id);
    expect(await state()).toEqual(before);
    await destroyService(cloud, service);
    for (const vpc of [a, b]) await own.remove(vpc);
    expect(await state()).toEqual(before);
  });
});

describe('address', () => {
  const at = stageRules();

  test('peerings that cannot be are invalid, with what to do about it', async () => {
    const { cloud, own } = at();
    const another = await anotherProject(cloud);
    const [mine, other, same, theirs, gone] = [
      await own.vpc('10.2.0.0/16'),
      await own.vpc('10.3.0.0/16'),
      await another.project.vpc('10.2.128.0/17'),
      await another.project.vpc('10.3.0.0/24'),
      await another.project.vpc('10.4.0.0/16'),
    ];
    await another.project.remove(gone);
    for (const [account, id, region, why] of [
      ['123456789012', 'vpc-0a1b2c3d', 'us-east-1', 'no provider for account 123456789012'],
      [cloud.projectId, mine.id, 'local', 'this VPC itself'],
      [cloud.projectId, other.id, 'mars', 'local only'],
      [cloud.projectId, '1', 'local', 'has no VPC 1'],
      [cloud.projectId, theirs.id, 'local', `has no VPC ${theirs.id}`],
      [another.id, gone.id, 'local', 'has deleted it'],
      [another.id, same.id, 'local', 'overlap'],
    ] as const) {
      const peering = await own.peer(mine, account, id, region);
      expect(peering).toMatchObject({
        status: 'invalid',
        error_message: expect.stringContaining(why),
        peer_account_id: account,
      });
      expect(peering).not.toHaveProperty('provisioned_id');
      expect(peering.error_message).not.toContain(same.cidr);
    }
    for (const body of [
      {},
      { peer_account_id: 'x' },
      { peer_account_id: 'x', peer_region_code: 'y', peer_vpc_id: 5 },
      { peer_account_id: 'a\nb', peer_region_code: 'y', peer_vpc_id: 'z' },
    ])
      await own.answered(400, 'POST', `/vpcs/${mine.id}/peerings`, body);
    // Two networks that overlap cannot both be reached from one VPC.
    await own.peer(mine, cloud.projectId, other.id);
    expect(await own.peer(mine, another.id, theirs.id)).toMatchObject({
      status: 'invalid',
      error_message: expect.stringContaining(other.id),
    });
    expect(
      (
        await own.call('POST', `/vpcs/${mine.id}/peerings`, {
          peer_account_id: cloud.projectId,
          peer_region_code: 'local',
          peer_vpc_id: other.id,
        })
      ).status,
    ).toBe(409);
    // The other side inside one project is there already, and can be asked for once.
    expect(await own.peer(other, cloud.projectId, mine.id)).toMatchObject({
      id: (await own.peerings(other))[0]?.id,
      status: 'active',
    });
    expect((await own.call('DELETE', `/vpcs/${mine.id}`)).status).toBe(409);
    await own.remove(mine);
    expect(await own.peerings(other)).toEqual([]);
    await own.remove(other);
    for (const vpc of [same, theirs]) await another.project.remove(vpc);
  });

  test('between projects a peering waits for its mirror; either side ends it', async () => {
    const { cloud, own } = at();
    const another = await anotherProject(cloud);
    const [mine, theirs] = [await own.vpc('10.5.0.0/16'), await another.project.vpc('10.6.0.0/16')];
    const pending = await own.peer(mine, another.id, theirs.id);
    expect(pending.status).toBe('pending');
    const mirror = await another.project.peer(theirs, cloud.projectId, mine.id);
    expect(mirror.status).toBe('active');
    expect(await own.peering(mine, pending.id)).toMatchObject({
      status: 'active',
      provisioned_id: mirror.provisioned_id,
    });
    await own.answered(204, 'DELETE', `/vpcs/${mine.id}/peerings/${pending.id}`);
    const ended = await another.project.peering(theirs, mirror.id);
    expect(ended).toMatchObject({
      status: 'disabled',
      error_message: expect.stringContaining('ended'),
    });
    await another.project.answered(204, 'DELETE', `/vpcs/${theirs.id}/peerings/${mirror.id}`);
    // A request to a VPC that goes becomes invalid.
    const left = await own.peer(mine, another.id, theirs.id);
    await another.project.remove(theirs);
    expect(await own.peering(mine, left.id)).toMatchObject({
      status: 'invalid',
      error_message: expect.stringContaining('deleted'),
    });
    // A request that nobody answers ends by itself.
    const late = await another.project.vpc('10.7.0.0/16');
    const unanswered = await own.peer(mine, another.id, late.id);
    const metadata = await openMetadata(cloud.home);
    await metadata.db
      .updateTable('peerings')
      .set({ created: new Date(Date.now() - 8 * 86_400_000) })
      .where('id', '=', unanswered.id)
      .execute();
    await metadata.close();
    await own.remove(await own.vpc('10.8.0.0/16'));
    await untilExpected('the peering has timed out', async () =>
      expect((await own.peering(mine, unanswered.id)).status).toBe('timeout'),
    );
    await own.remove(mine);
    await another.project.remove(late);
  });

  test('a VPC has up to 50 peerings', async () => {
    const { cloud, own } = at();
    const vpc = await own.vpc('10.9.0.0/16');
    for (let n = 0; n < 50; n++) await own.peer(vpc, cloud.projectId, '1');
    const more = await own.call('POST', `/vpcs/${vpc.id}/peerings`, {
      peer_account_id: 'x',
      peer_region_code: 'y',
      peer_vpc_id: 'z',
    });
    expect([more.status, messageOf(more)]).toEqual([422, expect.stringContaining('50')]);
    await own.remove(vpc);
  });
});
