/**
 * How clients connect to a service, language by language: complete programs that print the version
 * of the server. The console, the command line, MCP and docs/connecting.md show the same texts, and
 * connect.test.ts runs them as they stand.
 */
import { ADMIN_ROLE, DATABASE_NAME } from './types.ts';

/** The clients, in the order in which they are offered; the names are what users read. */
export const CLIENTS = {
  uri: 'URI',
  psql: 'psql',
  pg: 'Node.js: pg',
  'postgres.js': 'Node.js: postgres.js',
  psycopg: 'Python: psycopg',
  asyncpg: 'Python: asyncpg',
  jdbc: 'Java: JDBC',
  pgx: 'Go: pgx',
  ruby: 'Ruby: pg',
  php: 'PHP: PDO',
} as const;
export type ClientName = keyof typeof CLIENTS;

export function isClientName(name: string): name is ClientName {
  return Object.hasOwn(CLIENTS, name);
}

/** The address for a client. The password is not part of it: programs read it from PGPASSWORD. */
export type Target = {
  host: string;
  port: number;
  /** By default {@link DATABASE_NAME}; poolers have another one for pools by transaction. */
  database?: string;
  /** By default {@link ADMIN_ROLE}; a lease in a shared server has a role of its own. */
  user?: string;
  /**
   * The file of the CA certificate of the installation. null: the connection is encrypted, but the
   * server's certificate is not verified.
   */
  ca: string | null;
};

/** `HOST:PORT`, with brackets around IPv6 addresses. */
export function placeOf({ host, port }: Pick<Target, 'host' | 'port'>): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/**
 * The URI of libpq, with the strictest possible check of the server's certificate.
 *
 * @param password null: the client reads it from PGPASSWORD, ~/.pgpass or a prompt
 */
export function uriOf(target: Target, password: string | null): string {
  // Generated passwords are URL-safe; others may not be.
  const role = target.user ?? ADMIN_ROLE;
  const user = password === null ? role : `${role}:${encoded(password)}`;
  return `postgres://${user}@${placeOf(target)}/${databaseOf(target)}?${modeOf(target)}`;
}

/**
 * A complete program, or for `uri` and `psql` one line.
 *
 * @param password written into the line of `uri` and `psql`; programs read PGPASSWORD
 */
export function programOf(
  client: ClientName,
  target: Target,
  password: string | null = null,
): string {
  const uri = uriOf(target, null);
  switch (client) {
    case 'uri':
      return uriOf(target, password);
    case 'psql':
      return `psql "${uriOf(target, password)}"`;
    case 'pg':
      return nodePg(target);
    case 'postgres.js':
      return postgresJs(target);
    case 'psycopg':
      return psycopg(uri);
    case 'asyncpg':
      return asyncpg(uri);
    case 'jdbc':
      return jdbc(target);
    case 'pgx':
      return pgx(uri);
    case 'ruby':
      return ruby(uri);
    case 'php':
      return php(target);
  }
}

/** How a program is run, and what it needs. */
export const CLIENT_SETUP: Record<ClientName, string> = {
  uri: 'for libpq and the clients that read its URIs',
  psql: 'apt-get install postgresql-client',
  pg: 'npm install pg; node connect.mjs',
  'postgres.js': 'npm install postgres; node connect.mjs',
  psycopg: "pip install 'psycopg[binary]'; python connect.py",
  asyncpg: 'pip install asyncpg; python connect.py',
  jdbc: 'org.postgresql:postgresql from Maven Central; java -cp postgresql.jar Connect.java',
  pgx: 'go get github.com/jackc/pgx/v5; go run connect.go',
  ruby: 'gem install pg; ruby connect.rb',
  php: 'apt-get install php-cli php-pgsql; php connect.php',
};

const databaseOf = ({ database = DATABASE_NAME }: Target): string => database;

function modeOf({ ca }: Target): string {
  if (ca === null) return 'sslmode=require';
  return `sslmode=verify-full&sslrootcert=${encoded(ca).replaceAll('%2F', '/')}`;
}

/** For a URI within double quotes of a shell, where `!` may repeat an older command. */
const encoded = (text: string): string => encodeURIComponent(text).replaceAll('!', '%21');

/** A string of JavaScript, Java, Go, Python and Ruby: JSON's escapes are theirs too. */
const quoted = (text: string): string => JSON.stringify(text);

/** The options that both clients for Node have. */
function nodeOptions(target: Target, user: 'user' | 'username'): string[] {
  return [
    `  host: ${quoted(target.host)},`,
    `  port: ${target.port},`,
    `  database: ${quoted(databaseOf(target))},`,
    `  ${user}: ${quoted(ADMIN_ROLE)},`,
    target.ca === null
      ? '  ssl: { rejectUnauthorized: false },'
      : `  ssl: { ca: readFileSync(${quoted(target.ca)}, 'utf8') },`,
  ];
}

const readsCa = ({ ca }: Target): string[] =>
  ca === null ? [] : ["import { readFileSync } from 'node:fs';"];

function nodePg(target: Target): string {
  return lines(
    ...readsCa(target),
    "import pg from 'pg';",
    '',
    'const client = new pg.Client({',
    ...nodeOptions(target, 'user'),
    '});',
    'await client.connect();',
    "const { rows } = await client.query('select version()');",
    'console.log(rows[0].version);',
    'await client.end();',
  );
}

function postgresJs(target: Target): string {
  return lines(
    ...readsCa(target),
    "import postgres from 'postgres';",
    '',
    'const sql = postgres({',
    ...nodeOptions(target, 'username'),
    '});',
    'const [row] = await sql`select version()`;',
    'console.log(row.version);',
    'await sql.end();',
  );
}

function psycopg(uri: string): string {
  return lines(
    'import psycopg',
    '',
    `with psycopg.connect(${quoted(uri)}) as connection:`,
    '    row = connection.execute("select version()").fetchone()',
    '    print(row[0])',
  );
}

function asyncpg(uri: string): string {
  return lines(
    'import asyncio',
    'import asyncpg',
    '',
    '',
    'async def main():',
    `    connection = await asyncpg.connect(${quoted(uri)})`,
    '    print(await connection.fetchval("select version()"))',
    '    await connection.close()',
    '',
    '',
    'asyncio.run(main())',
  );
}

function jdbc(target: Target): string {
  const url = `jdbc:postgresql://${placeOf(target)}/${databaseOf(target)}?${modeOf(target)}`;
  return lines(
    'import java.sql.DriverManager;',
    '',
    'class Connect {',
    '  public static void main(String[] arguments) throws Exception {',
    `    var url = ${quoted(url)};`,
    '    var password = System.getenv("PGPASSWORD");',
    `    try (var connection = DriverManager.getConnection(url, ${quoted(ADMIN_ROLE)}, password);`,
    '        var statement = connection.createStatement();',
    '        var result = statement.executeQuery("select version()")) {',
    '      result.next();',
    '      System.out.println(result.getString(1));',
    '    }',
    '  }',
    '}',
  );
}

function pgx(uri: string): string {
  return lines(
    'package main',
    '',
    'import (',
    '\t"context"',
    '\t"fmt"',
    '\t"log"',
    '',
    '\t"github.com/jackc/pgx/v5"',
    ')',
    '',
    'func main() {',
    '\tctx := context.Background()',
    `\tconnection, err := pgx.Connect(ctx, ${quoted(uri)})`,
    '\tif err != nil {',
    '\t\tlog.Fatal(err)',
    '\t}',
    '\tdefer connection.Close(ctx)',
    '\tvar version string',
    '\tif err := connection.QueryRow(ctx, "select version()").Scan(&version); err != nil {',
    '\t\tlog.Fatal(err)',
    '\t}',
    '\tfmt.Println(version)',
    '}',
  );
}

function ruby(uri: string): string {
  return lines(
    'require "pg"',
    '',
    `connection = PG.connect(${quoted(uri)})`,
    'puts connection.exec("select version()").getvalue(0, 0)',
    'connection.close',
  );
}

function php(target: Target): string {
  const words = [
    `host=${target.host}`,
    `port=${target.port}`,
    `dbname=${databaseOf(target)}`,
    ...modeOf(target).split('&').map(decodeURIComponent),
  ];
  return lines(
    '<?php',
    `$dsn = '${`pgsql:${words.join(';')}`.replaceAll(/['\\]/g, '\\$&')}';`,
    `$connection = new PDO($dsn, '${ADMIN_ROLE}', getenv('PGPASSWORD'));`,
    "echo $connection->query('select version()')->fetchColumn(), PHP_EOL;",
  );
}

const lines = (...all: string[]): string => all.join('\n');
