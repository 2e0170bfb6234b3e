/** The calls that each kind of key may make, and the answers to the others. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  CALLERS,
  expectedOfRestricted,
  expectedStatus,
  expectedWithTags,
  ID_KINDS,
  KEYS,
  UNAUTHENTICATED,
  TAGS,
  type CallerKind,
  type IdKind,
} from './callers.ts';
import { ROUTES, type Route } from './document.ts';
import {
  authorization,
  call,
  calls,
  everything,
  haproxy,
  metadata,
  OURS,
  problemOfCall,
  type ProjectKind,
  tag,
  things,
  setUp,
  tearDown,
} from './callers-cloud.ts';

beforeAll(setUp);
afterAll(tearDown);

test('each caller gets the expected status; a refused call changes nothing', async () => {
  const before = await everything();
  const problems: string[] = [];

  const tryOne = async (
    route: Route,
    caller: CallerKind,
    project: ProjectKind,
    ids: IdKind,
  ): Promise<void> => {
    const row = CALLERS[route.operationId];
    if (row === undefined) throw new Error(`${route.operationId} is not in the table`);
    // The operator has a project without services: nothing of its own can be named in it.
    const there = caller === 'operator' && project === 'own' && ids === 'own' ? 'others' : ids;
    const problem = await problemOfCall(
      route,
      caller,
      project,
      there,
      expectedStatus(route, row, caller, project, there),
    );
    if (problem !== null) problems.push(problem);
  };

  for (const route of ROUTES) {
    const projects: ProjectKind[] = route.names.includes('project_id')
      ? ['own', 'others', 'random']
      : ['own'];
    const ids: IdKind[] = route.names.some((name) => name !== 'project_id')
      ? [...ID_KINDS]
      : ['own'];
    const cases = [...UNAUTHENTICATED, ...KEYS].flatMap((caller) =>
      projects.flatMap((project) => ids.map((id) => ({ caller, project, id }))),
    );
    await Promise.all(cases.map(({ caller, project, id }) => tryOne(route, caller, project, id)));
  }

  process.stdout.write(
    `${calls} calls of ${ROUTES.length} operations: ` +
      `${problems.length} answered otherwise than the table says\n`,
  );
  expect(problems).toEqual([]);
  expect(calls).toBeGreaterThan(ROUTES.length * (UNAUTHENTICATED.length + KEYS.length));
  expect(await everything()).toEqual(before);
});

test(
  'a developer cannot end or upgrade a PROD service, or one with a PROD set',
  { tags: 'slow' },
  async () => {
    const problems: (string | null)[] = [];
    const routes = ROUTES.filter(({ names }) => names.includes('service_id'));
    for (const tags of TAGS.filter(({ set }) => haproxy !== null || set === 'DEV')) {
      await tag(tags);
      const before = await everything();
      for (const route of routes) {
        const row = CALLERS[route.operationId];
        if (row === undefined) throw new Error(`${route.operationId} is not in the table`);
        const when = `, service ${tags.service}, set ${tags.set}`;
        for (const caller of ['admin', 'developer', 'viewer', 'forkOnly', 'dryRunOnly'] as const)
          problems.push(
            await problemOfCall(
              route,
              caller,
              'own',
              'own',
              expectedWithTags(route, row, caller, tags),
              when,
            ),
          );
      }
      expect(await everything()).toEqual(before);
    }
    await tag({ service: 'DEV', set: 'DEV' });
    expect(problems.filter((problem) => problem !== null)).toEqual([]);
  },
);

test('a fork_only key changes its own forks only, a dry_run_only key nothing', async () => {
  const problems: (string | null)[] = [];
  const ours = things['service_id']?.ours ?? '';
  const [forkOnly = ''] = (authorization.get('forkOnly') ?? '').replace('Bearer ', '').split(':');
  const { created_by: maker } = await metadata.db
    .selectFrom('services')
    .select('created_by')
    .where('id', '=', ours)
    .executeTakeFirstOrThrow();
  // In this order, the service is its maker's again afterwards.
  for (const made of [true, false]) {
    await metadata.db
      .updateTable('services')
      .set({ created_by: made ? forkOnly : maker })
      .where('id', '=', ours)
      .execute();
    const before = await everything();
    for (const route of ROUTES) {
      const row = CALLERS[route.operationId];
      if (row === undefined) throw new Error(`${route.operationId} is not in the table`);
      for (const caller of ['forkOnly', 'dryRunOnly'] as const) {
        const when = made ? ', a fork that it made' : ', nothing that it made';
        problems.push(
          await problemOfCall(
            route,
            caller,
            'own',
            'own',
            expectedOfRestricted(route, row, caller, made),
            when,
          ),
        );
      }
    }
    expect(await everything()).toEqual(before);
  }
  expect(problems.filter((problem) => problem !== null)).toEqual([]);
});

test('a purge needs an admin key, and the name of a PROD service', async () => {
  const path = `/projects/${OURS}/services/${things['service_id']?.ours}?purge=true&dry_run=true`;
  const answers: Record<string, number> = {};
  for (const environment of ['DEV', 'PROD'] as const) {
    await tag({ service: environment, set: 'DEV' });
    const before = await everything();
    for (const caller of [
      'admin',
      'developer',
      'viewer',
      'forkOnly',
      'dryRunOnly',
      'otherAdmin',
      'none',
    ] as const) {
      for (const confirm of ['', '&confirm=another', '&confirm=called'])
        answers[`${environment} ${caller}${confirm}`] = (
          await call('DELETE', `${path}${confirm}`, authorization.get(caller) ?? null)
        ).status;
    }
    expect(await everything()).toEqual(before);
  }
  await tag({ service: 'DEV', set: 'DEV' });
  const each = (name: string, without: number, withName = without) => ({
    [name]: without,
    [`${name}&confirm=another`]: without,
    [`${name}&confirm=called`]: withName,
  });
  expect(answers).toEqual({
    ...each('DEV admin', 200),
    ...each('DEV dryRunOnly', 200),
    ...each('PROD admin', 400, 200),
    ...each('PROD dryRunOnly', 400, 200),
    ...Object.assign(
      {},
      ...['developer', 'viewer', 'forkOnly', 'otherAdmin'].flatMap((who) => [
        each(`DEV ${who}`, 403),
        each(`PROD ${who}`, 403),
      ]),
    ),
    ...each('DEV none', 401),
    ...each('PROD none', 401),
  });
});

test('restrictions of a key are reported, and which key created a service', async () => {
  const info = async (caller: CallerKind): Promise<object> =>
    Object(JSON.parse((await call('GET', '/auth/info', authorization.get(caller) ?? null)).text))
      .api_key;
  expect(await info('developer')).toMatchObject({
    role: 'developer',
    fork_only: false,
    dry_run_only: false,
  });
  expect(await info('forkOnly')).toMatchObject({ fork_only: true, dry_run_only: false });
  expect(await info('dryRunOnly')).toMatchObject({ fork_only: false, dry_run_only: true });
  const path = `/projects/${OURS}/services/${things['service_id']?.ours}`;
  const { public_key: admin } = Object(await info('admin'));
  const shown = await call('GET', path, authorization.get('viewer') ?? null);
  expect(JSON.parse(shown.text)).toMatchObject({ created_by: admin });
});

test('a dry run of a resize lists a restart only if the size changes', async () => {
  const path = `/projects/${OURS}/services/${things['service_id']?.ours}/resize?dry_run=true`;
  const steps = async (body: object): Promise<unknown> =>
    Object(JSON.parse((await call('POST', path, authorization.get('admin') ?? null, body)).text))
      .operation?.steps;
  expect(await steps({ storage_gb: 20 })).toEqual(['reload configuration']);
  expect(await steps({ cpu_bound: true })).toEqual(['reload configuration']);
  expect(await steps({ storage_gb: 20, cpu_millis: 1000 })).toContain('stop PostgreSQL');
  expect(await steps({ cpu_millis: 1000 })).toContain('stop PostgreSQL');
});
