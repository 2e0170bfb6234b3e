/** The API of VPCs and peerings, as a project sees it; for tests and soaks. */
import type { Schemas } from '@howdah/client';
import type { Answer } from './harness-caller.ts';

export type Vpc = Schemas['Vpc'];
type Peering = Schemas['Peering'];

export type Call = (method: string, path: string, body?: unknown) => Promise<Answer>;

/** Calls of one project. */
export function project(call: Call) {
  const answered = async (
    status: number,
    method: string,
    path: string,
    body?: unknown,
  ): Promise<unknown> => {
    const answer = await call(method, path, body);
    if (answer.status !== status)
      throw new Error(
        `${method} ${path}: ${answer.status} instead of ${status}: ${JSON.stringify(answer.body)}`,
      );
    return answer.body;
  };
  return {
    call,
    answered,
    vpc: async (cidr: string, name = cidr): Promise<Vpc> =>
      vpcOf(await answered(201, 'POST', '/vpcs', { name, cidr, region_code: 'local' })),
    peer: async (vpc: Vpc, account: string, id: string, region = 'local'): Promise<Peering> =>
      peeringOf(
        await answered(201, 'POST', `/vpcs/${vpc.id}/peerings`, {
          peer_account_id: account,
          peer_region_code: region,
          peer_vpc_id: id,
        }),
      ),
    peering: async (vpc: Vpc, id: string): Promise<Peering> =>
      peeringOf(await answered(200, 'GET', `/vpcs/${vpc.id}/peerings/${id}`)),
    peerings: async (vpc: Vpc): Promise<Peering[]> => {
      const list = await answered(200, 'GET', `/vpcs/${vpc.id}/peerings`);
      return Array.isArray(list) ? list.map(peeringOf) : [];
    },
    /** Deletes a VPC with its peerings. */
    remove: async (vpc: Vpc): Promise<void> => {
      const list = await answered(200, 'GET', `/vpcs/${vpc.id}/peerings`);
      for (const { id } of Array.isArray(list) ? list.map(peeringOf) : [])
        await answered(204, 'DELETE', `/vpcs/${vpc.id}/peerings/${id}`);
      await answered(204, 'DELETE', `/vpcs/${vpc.id}`);
    },
  };
}
export type Project = ReturnType<typeof project>;

export const has = <K extends string>(value: unknown, ...keys: K[]): value is Record<K, string> =>
  typeof value === 'object' &&
  value !== null &&
  keys.every((key) => typeof Reflect.get(value, key) === 'string');
export function vpcOf(body: unknown): Vpc {
  if (!has(body, 'id', 'name', 'cidr', 'region_code'))
    throw new Error(`no VPC: ${JSON.stringify(body)}`);
  return body;
}
function isPeering(body: unknown): body is Peering {
  return has(body, 'id', 'status', 'peer_vpc_id');
}
export function peeringOf(body: unknown): Peering {
  if (!isPeering(body)) throw new Error(`no peering: ${JSON.stringify(body)}`);
  return body;
}
export const messageOf = ({ body }: Answer): string =>
  has(body, 'message') ? body.message : JSON.stringify(body);
