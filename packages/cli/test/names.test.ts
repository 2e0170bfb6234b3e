/** Names in place of ids: in arguments, and in tables. Times in tables. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { allowList, exporter, peering, peerVpc, PLAIN_SERVICE, SERVICE, vpc } from './examples.ts';
import { api, ok, setUp, tearDown } from './behaviour-shell.ts';

beforeAll(setUp);
afterAll(tearDown);

/** A peering with a VPC of another project, whose names are unknown. */
const FOREIGN = { ...peering, id: '2002', peer_account_id: 'zzzzzzzzzz', peer_vpc_id: '1009' };

test('a peering is named by the other VPC, by its id, or by PROJECT/VPC', async () => {
  const { run, paths } = await api({ listPeerings: ok([peering, FOREIGN]) });
  const { stdout } = await run('peering', 'list', 'office');
  expect(stdout).toMatch(/^WITH +STATUS +WHY\nwarehouse +active *\nzzzzzzzzzz\/1009 +active *\n$/);
  for (const [name, id] of [
    ['warehouse', peering.id],
    [peering.id, peering.id],
    ['zzzzzzzzzz/1009', FOREIGN.id],
  ] as const) {
    expect(await run('peering', 'delete', 'office', name)).toMatchObject({ code: 0, stdout: '' });
    expect(paths.at(-1), name).toContain(`/peerings/${id}`);
  }
});

test('an unknown peering, VPC or allow list is said, with the name that was meant', async () => {
  const { run, changed } = await api();
  for (const [line, said] of [
    [['peering', 'get', 'office', 'warehuose'], 'did you mean warehouse?'],
    [['peering', 'delete', 'office', 'warehuose'], 'howdah peering list office shows them'],
    [['peering', 'create', 'office', '--peer', 'warehuose'], 'did you mean warehouse?'],
    [['peering', 'list', 'ofice'], 'did you mean office?'],
    [['allow-list', 'delete', 'ofice'], 'did you mean office?'],
    [['audit-log', 'list', '--service', 'ordres'], 'did you mean orders?'],
    [['audit-log', 'list', '--key', 'cj'], 'did you mean ci?'],
  ] as const)
    expect(await run(...line), line.join(' ')).toMatchObject({
      code: 3,
      stdout: '',
      stderr: expect.stringContaining(said),
    });
  expect(changed).toEqual([]);
});

test('an ambiguous name is refused with the ids, which the list has beside it', async () => {
  const twin = { ...allowList, allow_list_id: 'list3allow' };
  const { run, changed } = await api({
    listAllowLists: ok([allowList, twin]),
    listPeerings: ok([peering, { ...peering, id: '2003', status: 'invalid' }]),
  });
  for (const [line, ids] of [
    [
      ['allow-list', 'delete', 'office'],
      ['list2allow', 'list3allow'],
    ],
    [
      ['peering', 'delete', 'office', 'warehouse'],
      ['2001', '2003'],
    ],
  ] as const) {
    const { code, stderr } = await run(...line);
    expect(code, line.join(' ')).toBe(2);
    for (const id of ids) expect(stderr).toContain(id);
  }
  expect(changed).toEqual([]);
  expect((await run('allow-list', 'list')).stdout).toContain('office (list3allow)');
  expect((await run('peering', 'list', 'office')).stdout).toContain('warehouse (2003)');
});

test('tables have names where there are some, and ids only where there are none', async () => {
  const fork = {
    ...SERVICE,
    forked_from: { service_id: PLAIN_SERVICE.service_id, project_id: SERVICE.project_id },
    vpc_endpoint: { ...SERVICE.endpoint, vpc_id: peerVpc.id },
  };
  const { run } = await api({ getService: ok(fork), listServices: ok([fork, PLAIN_SERVICE]) });
  const { stdout } = await run('service', 'get', 'orders');
  for (const [title, name] of [
    ['VPC', peerVpc.name],
    ['ALLOW LIST', allowList.description],
    ['EXPORTER', exporter.name],
    ['FORKED FROM', PLAIN_SERVICE.name],
  ] as const)
    expect(stdout).toMatch(new RegExp(`^${title} +${name.replace('$', '\\$')}$`, 'm'));
  for (const [noun, id] of [
    ['service', SERVICE.service_id],
    ['vpc', vpc.id],
    ['allow-list', allowList.allow_list_id],
    ['exporter', exporter.exporter_id],
  ] as const) {
    expect((await run(noun, 'list')).stdout).not.toContain(id);
    const { stdout: one } = await run(noun, 'get', id);
    expect(one).toMatch(new RegExp(`^ID +${id}$`, 'm'));
  }
});

test('times are distances; --time iso shows date-times, and json always has them', async () => {
  const created = new Date(Date.now() - 3 * 3_600_000 - 60_000).toISOString();
  const webhook = { id: '7', url: 'https://example.com/hook', types: [], created };
  const { run } = await api({ listWebhooks: ok([webhook]) });
  expect((await run('webhook', 'list')).stdout).toContain('3 hours ago');
  for (const line of [
    ['webhook', 'list', '--time', 'iso'],
    ['--time', 'iso', 'webhook', 'list'],
    ['webhook', '--time', 'iso', 'list'],
    ['webhook', 'list', '-o', 'json'],
  ])
    expect((await run(...line)).stdout, line.join(' ')).toContain(created);
  expect(await run('webhook', 'list', '--time', 'local')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('relative, iso'),
  });
});
