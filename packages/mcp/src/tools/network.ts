/** Tools for who may connect to a service: VPCs and allow lists. */
import type { Schemas } from '@howdah/client';
import { Type } from 'typebox';
import { body, findService, type Cloud } from '../cloud.ts';
import { Problem } from '../problem.ts';
import {
  addTool,
  askedAs,
  changing,
  closed,
  confirmedForProd,
  confirmOfProd,
  service,
  wait,
  type ToolServer,
} from '../tool.ts';
import { adjust, SERVICE } from './change.ts';

type Vpc = Schemas['Vpc'];
type AllowList = Schemas['AllowList'];

const VPCS = '/projects/{project_id}/vpcs';
const LISTS = '/projects/{project_id}/allow-lists';
const LIST = `${LISTS}/{allow_list_id}` as const;

const nothing = Type.Object({}, closed);
const allow_list = Type.String({
  minLength: 1,
  maxLength: 128,
  description: 'its description or allow_list_id',
});
const description = Type.String({
  minLength: 1,
  maxLength: 128,
  description: 'what the list is for',
});
const cidr_blocks = Type.Array(Type.String({ minLength: 1, maxLength: 64 }), {
  minItems: 1,
  description: 'networks whose clients may connect, like 203.0.113.0/24 and 2001:db8::/32',
});

export function addNetworkTools(server: ToolServer, cloud: Cloud): void {
  addListVpcs(server, cloud);
  addSetVpc(server, cloud);
  addListAllowLists(server, cloud);
  addCreateAllowList(server, cloud);
  addChangeAllowList(server, cloud);
  addDeleteAllowList(server, cloud);
  addSetAllowList(server, cloud);
}

function addListVpcs(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'list_vpcs',
    {
      title: 'List VPCs',
      description: 'The private networks of the project, with their addresses and region. Free.',
      kind: 'read',
      input: nothing,
    },
    async () => {
      const vpcs = await readVpcs(cloud);
      const words = vpcs.map(({ id, name, cidr }) => `${name} (${id}) ${cidr}`);
      return { summary: words.join(', ') || 'No VPCs.', data: { vpcs } };
    },
  );
}

function addSetVpc(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'set_vpc',
    {
      title: 'Move a service into a VPC, or out of it',
      description:
        'In a VPC only its clients, and those of its peers, can connect; sessions of others ' +
        'end. Without one, the public endpoint accepts all clients. PROD needs confirm. Ask ' +
        'the user first: this tool itself may not reach the service any more.',
      kind: 'change',
      input: Type.Object(
        {
          service,
          vpc: Type.Union([Type.String({ minLength: 1, maxLength: 128 }), Type.Null()], {
            description: 'name or id of a VPC; null: out of the one that it is in',
          }),
          confirm: confirmOfProd,
          ...wait,
          ...changing,
        },
        closed,
      ),
    },
    async (args, signal) => {
      const found = await findService(cloud, args.service);
      if (args.vpc === null) {
        const vpc_id = found.vpc_endpoint?.vpc_id;
        if (vpc_id === undefined) throw hasNone(found.name, 'VPC');
        confirmedForProd('detachFromVPC', found, args);
        return adjust(cloud, found, args, signal, (asked) =>
          cloud.client.POST(`${SERVICE}/detachFromVPC`, { ...asked, body: { vpc_id } }),
        );
      }
      const { id: vpc_id } = findOne(await readVpcs(cloud), args.vpc, VPC_WORDS);
      confirmedForProd('attachToVPC', found, args);
      return adjust(cloud, found, args, signal, (asked) =>
        cloud.client.POST(`${SERVICE}/attachToVPC`, { ...asked, body: { vpc_id } }),
      );
    },
  );
}

function addListAllowLists(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'list_allow_lists',
    {
      title: 'List allow lists',
      description:
        'The lists of networks whose clients may connect to the services with them. Free.',
      kind: 'read',
      input: nothing,
    },
    async () => {
      const allow_lists = await readLists(cloud);
      return {
        summary: allow_lists.map(inWords).join('; ') || 'No allow lists.',
        data: { allow_lists },
      };
    },
  );
}

function addCreateAllowList(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'create_allow_list',
    {
      title: 'Create an allow list',
      description:
        'Makes a list of networks. It has no effect until set_allow_list gives it to a service.',
      kind: 'make',
      input: Type.Object({ description, cidr_blocks, ...changing }, closed),
    },
    async (args, signal) => {
      const { query, header } = askedAs(args);
      const path = { project_id: await cloud.projectId() };
      const made = body(
        await cloud.client.POST(LISTS, {
          params: { path, query, header },
          body: { description: args.description, cidr_blocks: args.cidr_blocks },
          signal,
        }),
      );
      return { summary: `${inWords(made)} is created.`, data: { ...made } };
    },
  );
}

function addChangeAllowList(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'change_allow_list',
    {
      title: 'Change the networks of an allow list',
      description:
        'Replaces all networks of a list: send those that stay, too. The services that have it ' +
        'follow at once, and sessions of clients that are no longer allowed end. Ask the user.',
      kind: 'change',
      input: Type.Object({ allow_list, cidr_blocks, dry_run: changing.dry_run }, closed),
    },
    async (args, signal) => {
      const found = findOne(await readLists(cloud), args.allow_list, LIST_WORDS);
      const changed = body(
        await cloud.client.PATCH(LIST, {
          params: { path: pathOfList(found), query: askedAs(args).query },
          body: { cidr_blocks: args.cidr_blocks },
          signal,
        }),
      );
      return { summary: `${inWords({ ...found, ...changed })} is changed.`, data: { ...changed } };
    },
  );
}

function addDeleteAllowList(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'delete_allow_list',
    {
      title: 'Delete an allow list',
      description: 'Deletes a list that no service has. Others are refused, with what to do.',
      kind: 'change',
      input: Type.Object({ allow_list, dry_run: changing.dry_run }, closed),
    },
    async (args, signal) => {
      const found = findOne(await readLists(cloud), args.allow_list, LIST_WORDS);
      await cloud.client.DELETE(LIST, {
        params: { path: pathOfList(found), query: askedAs(args).query },
        signal,
      });
      const { allow_list_id } = found;
      return { summary: `${inWords(found)} is deleted.`, data: { allow_list_id, deleted: true } };
    },
  );
}

function addSetAllowList(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'set_allow_list',
    {
      title: 'Give a service an allow list, or take it away',
      description:
        'With a list only clients of its networks can connect; sessions of others end. Without ' +
        'one, the endpoint accepts all clients. PROD needs confirm. Ask the user first.',
      kind: 'change',
      input: Type.Object(
        {
          service,
          allow_list: Type.Union([allow_list, Type.Null()], {
            description: 'description or allow_list_id; null: without a list',
          }),
          confirm: confirmOfProd,
          ...wait,
          ...changing,
        },
        closed,
      ),
    },
    async (args, signal) => {
      const found = await findService(cloud, args.service);
      if (args.allow_list === null) {
        const { allow_list_id } = found;
        if (allow_list_id === undefined) throw hasNone(found.name, 'allow list');
        confirmedForProd('detachFromAllowList', found, args);
        return adjust(cloud, found, args, signal, (asked) =>
          cloud.client.POST(`${SERVICE}/detachFromAllowList`, {
            ...asked,
            body: { allow_list_id },
          }),
        );
      }
      const { allow_list_id } = findOne(await readLists(cloud), args.allow_list, LIST_WORDS);
      confirmedForProd('attachToAllowList', found, args);
      return adjust(cloud, found, args, signal, (asked) =>
        cloud.client.POST(`${SERVICE}/attachToAllowList`, { ...asked, body: { allow_list_id } }),
      );
    },
  );
}

async function readVpcs({ client, projectId }: Cloud): Promise<Vpc[]> {
  return body(await client.GET(VPCS, { params: { path: { project_id: await projectId() } } }));
}

async function readLists({ client, projectId }: Cloud): Promise<AllowList[]> {
  return body(await client.GET(LISTS, { params: { path: { project_id: await projectId() } } }));
}

const pathOfList = ({ project_id, allow_list_id }: AllowList) => ({ project_id, allow_list_id });

const inWords = ({ description: text, allow_list_id: id, cidr_blocks: networks }: AllowList) =>
  `${text} (${id}) ${networks.join(', ')}`;

/** How things of a kind are called, by their ids and names. */
type Words<Of> = { kind: string; tool: string; id: (one: Of) => string; name: (one: Of) => string };

const VPC_WORDS: Words<Vpc> = {
  kind: 'VPC',
  tool: 'list_vpcs',
  id: ({ id }) => id,
  name: ({ name }) => name,
};
const LIST_WORDS: Words<AllowList> = {
  kind: 'allow list',
  tool: 'list_allow_lists',
  id: ({ allow_list_id: id }) => id,
  name: ({ description: text }) => text,
};

/** The thing that an argument means: an id precedes names. @throws Problem */
function findOne<Of>(all: readonly Of[], wanted: string, { kind, tool, id, name }: Words<Of>): Of {
  const byId = all.find((one) => id(one) === wanted);
  const named = byId === undefined ? all.filter((one) => name(one) === wanted) : [byId];
  const [found] = named;
  if (found === undefined)
    throw new Problem(
      `no ${kind} has the name or id ${JSON.stringify(wanted)}`,
      `${tool} shows them`,
      'NOT_FOUND',
    );
  if (named.length === 1) return found;
  const candidates = named.map((one) => ({ id: id(one), name: name(one) }));
  throw new Problem(
    `${named.length} things of the kind ${kind} are named ${JSON.stringify(wanted)}: ` +
      named.map(id).join(', '),
    'call again with the id of one of them',
    'AMBIGUOUS',
    { candidates },
  );
}

const hasNone = (name: string, kind: string): Problem =>
  new Problem(`${JSON.stringify(name)} has no ${kind}`, 'get_service shows where clients connect');
