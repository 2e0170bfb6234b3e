/**
 * Two ways to list services by hand, from the same metadata: `/documents` returns stored documents
 * as string_agg joins them, `/rows` reads rows, makes objects and turns them into JSON. Arguments:
 * socket directory, project.
 */
import { createServer } from 'node:http';
import { Pool } from 'pg';
import { serviceDocument } from '../../packages/server/src/domain/service/document.ts';
import type { ServiceRow } from '../../packages/server/src/domain/service/row.ts';

const [host = '', project = ''] = process.argv.slice(2);
const pool = new Pool({ host, port: 5432, user: 'howdah', database: 'postgres', max: 2 });

const documents = async (): Promise<string> => {
  const { rows } = await pool.query<{ docs: string }>({
    name: 'documents',
    text:
      "select '[' || string_agg(doc, ',' order by created, id) || ']' as docs from services " +
      'where project_id = $1',
    values: [project],
  });
  return rows[0]?.docs ?? '[]';
};

const rows = async (): Promise<string> => {
  const found = await pool.query<ServiceRow>({
    name: 'rows',
    text: 'select * from services where project_id = $1 order by created, id',
    values: [project],
  });
  return JSON.stringify(found.rows.map(serviceDocument));
};

const server = createServer((request, response) => {
  const answer = async (): Promise<void> => {
    const body = await (request.url === '/rows' ? rows() : documents());
    response.setHeader('Content-Type', 'application/json');
    response.end(body);
  };
  void answer();
});
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  process.stdout.write(`${typeof address === 'object' ? address?.port : address}\n`);
});
