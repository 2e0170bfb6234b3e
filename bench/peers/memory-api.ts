/**
 * The lower bound of a GET with the same framework: Fastify answers documents from a Map. Argument:
 * a file of `id document` lines.
 */
import { readFileSync } from 'node:fs';
import Fastify from 'fastify';

const [file = ''] = process.argv.slice(2);
const documents = new Map(
  readFileSync(file, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => [line.slice(0, 10), Buffer.from(line.slice(11))]),
);
const app = Fastify();
app.get<{ Params: { id: string } }>('/services/:id', async ({ params }, reply) => {
  const document = documents.get(params.id);
  if (document === undefined) return reply.code(404).send();
  return reply.type('application/json').send(document);
});
const address = await app.listen({ host: '127.0.0.1', port: 0 });
process.stdout.write(`${new URL(address).port}\n`);
