/** Scenes that several families share: a create, a removal, a change. */
import { randomUUID } from 'node:crypto';
import { playable, type Playable } from './crash.ts';
import { type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import {
  accessOf,
  endings,
  isGone,
  namesIn,
  nothingGoesOn,
  type ServiceAccess,
} from './service-access.ts';
import { until } from './until.ts';

type Creation = { name: string; child: ServiceAccess | null };

let creates = 0;

export function creation(
  cloud: Installation,
  name: string,
  servers: readonly string[],
  parent: ServiceAccess | null,
  body: () => object,
): Playable {
  const path = parent === null ? '/services' : `/services/${parent.service_id}/forkService`;
  return playable<Creation>({
    name,
    servers,
    prepare: async () => ({ name: `creation ${++creates}`, child: null }),
    roles: () => (parent === null ? {} : { [parent.service_id]: 'parent' }),
    act: async (stage) => {
      // A client whose request was not answered looks whether it was heard.
      stage.child = await adopted(cloud, stage.name);
      if (stage.child !== null) return;
      const type = parent === null ? { service_type: 'POSTGRES' } : {};
      const { status, body: answer } = await cloud.request('POST', path, {
        name: stage.name,
        ...type,
        ...body(),
      });
      if (status !== 202) throw new Error(`${name}: ${status} ${JSON.stringify(answer)}`);
      stage.child = accessOf(answer);
    },
    done: async ({ child }) =>
      child !== null &&
      (await cloud.get(child.service_id)).status === 'READY' &&
      (await nothingGoesOn(cloud)),
    outcome: async ({ child }) => {
      if (child === null) return 'never created';
      return {
        names: await namesIn(cloud, child),
        parent: parent === null ? null : { status: (await cloud.get(parent.service_id)).status },
        operations: await endings(cloud, child),
      };
    },
    clear: async ({ child }) => {
      if (child === null) return;
      await cloud.request('DELETE', `/services/${child.service_id}`);
      await until('the fork is deleted', () => isGone(cloud, child));
    },
  });
}

/**
 * A service that was created although the call was not answered: it gets another password, since
 * the first is not known.
 */
async function adopted(cloud: Installation, name: string): Promise<ServiceAccess | null> {
  const { data } = await cloud.client.GET('/projects/{project_id}/services', {
    params: { path: { project_id: cloud.projectId } },
  });
  const found = data?.find((service) => service.name === name);
  if (found === undefined) return null;
  await cloud.until(found.service_id, 'READY');
  const initial_password = 'a password of the adopted';
  await cloud.request('POST', `/services/${found.service_id}/updatePassword`, {
    password: initial_password,
  });
  return { service_id: found.service_id, endpoint: found.endpoint, initial_password };
}

type Change = {
  before: () => Promise<unknown>;
  ask: readonly ['POST' | 'PUT' | 'DELETE', string, (() => object)?];
  /** null: nobody sees it any more. */
  becomes: Service['status'] | null;
  /** Further observations that the outcome is reached. */
  shows?: () => Promise<unknown>;
  after: () => Promise<unknown>;
};

/**
 * A change that is asked for under one name until it is answered: it is made once, whatever dies.
 */
export function change(
  cloud: Installation,
  service: ServiceAccess,
  name: string,
  { before, ask, becomes, shows, after }: Change,
): Playable {
  const [method, path, body] = ask;
  return playable<{ begunMs: number; once: string }>({
    name,
    servers: ['it'],
    prepare: async () => {
      await before();
      return { begunMs: Date.now(), once: randomUUID() };
    },
    roles: () => ({ [service.service_id]: 'it' }),
    act: async ({ once }) => {
      const { status, body: answer } = await cloud.request(
        method,
        `/services/${service.service_id}${path}`,
        body?.(),
        {
          'Idempotency-Key': once,
        },
      );
      // A delete has no name: asked for again, it finds nothing any more.
      if (status >= (method === 'DELETE' ? 500 : 400))
        throw new Error(`${name}: ${status} ${JSON.stringify(answer)}`);
    },
    done: async () => {
      const ended =
        becomes === null
          ? await isGone(cloud, service)
          : (await cloud.get(service.service_id)).status === becomes;
      return ended && (await nothingGoesOn(cloud));
    },
    outcome: async ({ begunMs }) => {
      const operations = (await endings(cloud, service, begunMs)).toSorted();
      const shown = await shows?.();
      await after();
      return { operations, shown, names: await namesIn(cloud, service) };
    },
    clear: async () => undefined,
  });
}
