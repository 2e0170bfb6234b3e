/**
 * A client of a database as its own process, so that it can be anywhere: in a network namespace, or
 * with a source address of its own. Takes what to connect to as JSON, says `in as ADDRESS`, then
 * `ended` when its session ends; or `refused` and why. Goes when its input ends.
 */
import { Socket } from 'node:net';
import { Client } from 'pg';

export type Target = {
  host: string;
  port: number;
  database: string;
  password: string;
  ca: string;
  /** The address that it comes from; absent: whichever the system takes. */
  from?: string;
  patienceMs: number;
};

const target: Target = JSON.parse(process.argv[2] ?? '');
const say = (line: string): void => void process.stdout.write(`${line}\n`);
process.stdin.once('end', () => process.exit()).resume();

/** A socket with another source address; pg knows no such setting. */
class SocketFrom extends Socket {
  override connect(...[port, host]: unknown[]): this {
    return super.connect({
      port: Number(port),
      host: String(host),
      ...(target.from === undefined ? {} : { localAddress: target.from }),
    });
  }
}

const { host, port, database, password, ca, patienceMs } = target;
const client = new Client({
  host,
  port,
  database,
  password,
  user: 'tsdbadmin',
  ssl: { ca, rejectUnauthorized: true },
  connectionTimeoutMillis: patienceMs,
  stream: () => new SocketFrom(),
});
let inside = false;
client.on('error', () => undefined);
client.on('end', () => {
  if (inside) say('ended');
});
try {
  await client.connect();
  const { rows } = await client.query<{ address: string }>(
    'select inet_client_addr()::text as address',
  );
  inside = true;
  say(`in as ${rows[0]?.address}`);
} catch (error) {
  say(`refused ${String(error)}`);
}
