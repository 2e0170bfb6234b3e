/** docs/connecting.md: the programs of @howdah/contract/connect. */
import {
  CLIENT_SETUP,
  CLIENTS,
  isClientName,
  programOf,
  type ClientName,
} from '@howdah/contract/connect';

/** The language of each program, as Markdown names it. */
const LANGUAGE: Record<ClientName, string> = {
  uri: 'text',
  psql: 'sh',
  pg: 'js',
  'postgres.js': 'js',
  psycopg: 'python',
  asyncpg: 'python',
  jdbc: 'java',
  pgx: 'go',
  ruby: 'ruby',
  php: 'php',
};

const HEAD = `# Connect from your language

Generated from \`packages/contract/src/connect.ts\` by \`npm run generate\`.

\`howdah url SERVICE --for CLIENT\` prints each of these programs with the address of your service.
The console has them on the page of a service, and agents get them from the tool \`get_service\`.
They read the password from PGPASSWORD, and verify the server's certificate with the CA certificate
of the installation:

\`\`\`sh
curl "$HD_API/ca.pem" -o ca.pem
export PGPASSWORD=…
\`\`\`

\`connect.test.ts\` runs the programs for psql and Node.js as they stand.
\`tools/clients/try.sh SERVICE\` runs all of them, each with the newest package of its registry.

- \`sslmode=require\` encrypts, but does not verify. \`pg\` for Node.js verifies in spite of that
  name, so it needs the CA certificate in any case, or \`rejectUnauthorized: false\`.
- \`postgres.js\` sends parameters of a URI that it does not know to the server, which refuses
  \`sslrootcert\`. Use options in place of the URI.
- Prisma with \`@prisma/adapter-pg\` takes the URI too, with the password in it. Where it makes a
  shadow database, give it the parts instead (\`host\`, \`port\`, \`user\`, \`password\`,
  \`database\`, \`ssl\`): with a URI, its adapter 6.19 works in the database of the URI.
- \`channel_binding=require\` works directly, but not through a connection pooler: PgBouncer has no
  channel binding. Leave it out there; \`sslmode=verify-full\` verifies the server.
- Through a pooler by transaction, use the database \`tsdb_transaction\`.
`;

/** The page. */
export function connectingPage(): string {
  const target = { host: '127.0.0.1', port: 20_000, ca: 'ca.pem' };
  const parts = Object.keys(CLIENTS)
    .filter(isClientName)
    .map((client) =>
      [
        `## ${CLIENTS[client]}`,
        '',
        `\`--for ${client}\`: ${CLIENT_SETUP[client]}`,
        '',
        `\`\`\`${LANGUAGE[client]}`,
        programOf(client, target),
        '```',
        '',
      ].join('\n'),
    );
  return [HEAD, ...parts].join('\n');
}
