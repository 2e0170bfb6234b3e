/** The schema of each service as a resource, which a user can attach to a conversation. */
import { makeVisible, visibleJson } from '@howdah/contract';
import { ProtocolError, ProtocolErrorCode, ResourceTemplate } from '@modelcontextprotocol/server';
import { body, findService, type Cloud, type Service } from './cloud.ts';
import { explain } from './problem.ts';
import { readTables } from './tools/database.ts';
import type { ToolServer } from './tool.ts';

const MAX_COMPLETIONS = 100;

export function addSchemaResource(server: ToolServer, cloud: Cloud): void {
  const template = new ResourceTemplate('howdah://services/{name}/schema', {
    list: async () => ({
      resources: (await readServices(cloud)).map((one, _index, all) => ({
        uri: `howdah://services/${encodeURIComponent(nameIn(one, all))}/schema`,
        name: makeVisible(one.name),
        title: `Schema of ${makeVisible(one.name)} (${one.service_id})`,
        mimeType: 'application/json',
      })),
    }),
    complete: {
      name: async (begun) => {
        const services = await readServices(cloud);
        return services
          .map((one) => nameIn(one, services))
          .filter((name) => name.startsWith(begun))
          .slice(0, MAX_COMPLETIONS);
      },
    },
  });
  server.registerResource(
    'schema',
    template,
    {
      title: 'Schema of a service',
      description:
        'Tables and views of the database tsdb with columns, keys, indexes and sizes, as ' +
        'db_schema shows them. name: the name or service_id of the service.',
      mimeType: 'application/json',
    },
    async (uri, { name }, { mcpReq: { signal } }) => {
      try {
        const found = await findService(cloud, decodeURIComponent(String(name)));
        const { data } = await readTables(cloud, found, {}, signal);
        const text = visibleJson(JSON.stringify(data));
        return { contents: [{ uri: uri.href, mimeType: 'application/json', text }] };
      } catch (error) {
        const { code, message, try_next: next } = explain(error);
        throw new ProtocolError(
          ProtocolErrorCode.InvalidParams,
          makeVisible(`${code}: ${message}. Next: ${next}.`),
        );
      }
    },
  );
}

async function readServices({ client, projectId }: Cloud): Promise<Service[]> {
  const path = { project_id: await projectId() };
  return body(await client.GET('/projects/{project_id}/services', { params: { path } }));
}

/** The name of a service, or its id where another one has the name. */
function nameIn({ name, service_id: id }: Service, all: readonly Service[]): string {
  const isUnique = all.filter((one) => one.name === name || one.service_id === name).length === 1;
  return isUnique ? name : id;
}
