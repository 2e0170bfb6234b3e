import { Type } from 'typebox';
import { body, findService, pathOf, type Cloud } from '../cloud.ts';
import {
  addTool,
  changing,
  closed,
  confirmedForProd,
  confirmOfProd,
  service,
  wait,
  type ToolServer,
} from '../tool.ts';
import { change } from './change.ts';

const AT = '/projects/{project_id}/services/{service_id}/extensions';

export function addExtensionTools(server: ToolServer, cloud: Cloud): void {
  addListExtensions(server, cloud);
  addChangeExtension(server, cloud);
}

function addListExtensions(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'list_extensions',
    {
      title: 'Extensions of a service',
      description:
        'The extensions that a service has or can have, ' +
        'whether enabling one restarts it (preload), ' +
        'and why others are refused. Free.',
      kind: 'read',
      input: Type.Object({ service }, closed),
    },
    async (args) => {
      const found = await findService(cloud, args.service);
      const extensions = body(await cloud.client.GET(AT, { params: { path: pathOf(found) } }));
      const enabled = extensions.filter(({ state }) => state === 'enabled');
      const allowed = extensions.filter((one) => one.allowed && one.state === 'disabled');
      return {
        summary:
          `${enabled.length} enabled, ${allowed.length} more allowed, ` +
          `${extensions.length} installed.`,
        data: { extensions },
      };
    },
  );
}

function addChangeExtension(server: ToolServer, cloud: Cloud): void {
  const { client } = cloud;
  const extension = Type.String({ description: 'its name; list_extensions shows them' });
  addTool(
    server,
    'enable_extension',
    {
      title: 'Enable an extension',
      description:
        'Creates an extension in the database of a service. If list_extensions says preload, the ' +
        'service restarts: its sessions end, new ones wait about a second. To undo it: DROP ' +
        'EXTENSION, or howdah extension disable. PROD needs confirm.',
      kind: 'change',
      input: Type.Object(
        { service, extension, confirm: confirmOfProd, ...wait, ...changing },
        closed,
      ),
    },
    async (args, signal) => {
      const found = await findService(cloud, args.service);
      confirmedForProd('enableExtension', found, args);
      return change(cloud, found, args, signal, 'READY', (asked) =>
        client.POST(AT, { ...asked, body: { name: args.extension } }),
      );
    },
  );
}
