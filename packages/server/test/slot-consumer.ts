/** Consumers of logical slots, which remember every number that was inserted into a table. */
import type { Client } from 'pg';
import type { ServiceAccess } from './ha-load.ts';
import { connectTo, type Installation } from './harness.ts';
import { during } from './until.ts';

const INSERTED = /^table public\.\w+: INSERT: n\[integer\]:(\d+)/;

/** The number in a line of `test_decoding` about an insert. */
export function insertedIn(text: string): number[] {
  const number = INSERTED.exec(text)?.[1];
  return number === undefined ? [] : [Number(number)];
}

/** The messages of a stream ([PG] 53.4): 64 bits each for positions, then the time. */
const [XLOG_DATA, KEEPALIVE] = ['w'.charCodeAt(0), 'k'.charCodeAt(0)];
const HEADER_BYTES = 25;

/**
 * Reads a slot as a stream, with a position of its own: a session that breaks is followed by
 * another, which goes on from there.
 */
export function startConsumer(cloud: Installation, service: ServiceAccess, slot: string) {
  const numbers: number[] = [];
  let position = 0n;
  let stopping = false;
  let current: Client | null = null;

  const read = (client: Client, chunk: Buffer, begun: number[]): void => {
    if (chunk[0] === XLOG_DATA) {
      const text = chunk.subarray(HEADER_BYTES).toString();
      begun.push(...insertedIn(text));
      if (!text.startsWith('COMMIT')) return;
      numbers.push(...begun.splice(0));
    } else if (chunk[0] !== KEEPALIVE) return;
    // The server has nothing from before the end that a keepalive names, either.
    position = chunk.readBigUInt64BE(1);
    client.connection.stream.write(statusOf(position));
  };

  const session = async (): Promise<void> => {
    try {
      const client = await connectTo(cloud, service, service.initial_password, {
        replication: 'database',
      });
      current = client;
      const begun: number[] = [];
      client.connection.on('copyData', ({ chunk }: { chunk: Buffer }) =>
        read(client, chunk, begun),
      );
      const from = `${(position >> 32n).toString(16)}/${(position & 0xffff_ffffn).toString(16)}`;
      await client.query(`START_REPLICATION SLOT ${slot} LOGICAL ${from}`);
    } catch {
      current?.connection.stream.destroy(); // its server is gone: another session
    }
  };
  const ended = during(() => !stopping, session);

  return {
    numbers,
    stop: async (): Promise<void> => {
      stopping = true;
      current?.connection.stream.destroy();
      await ended;
    },
  };
}

/** Reports a position as written, flushed and applied, in a message of COPY. */
function statusOf(position: bigint): Buffer {
  const message = Buffer.alloc(5 + 34);
  message.write('d');
  message.writeInt32BE(4 + 34, 1);
  message.write('r', 5);
  for (const at of [6, 14, 22]) message.writeBigUInt64BE(position, at);
  return message;
}

/** Reads a slot by SQL: the position is that of the slot alone. @returns the numbers inserted */
export async function readSlot(
  cloud: Installation,
  service: ServiceAccess,
  slot: string,
): Promise<number[]> {
  const client = await connectTo(cloud, service, service.initial_password);
  try {
    const { rows } = await client.query<{ data: string }>(
      'select data from pg_logical_slot_get_changes($1, null, null)',
      [slot],
    );
    return rows.flatMap(({ data }) => insertedIn(data));
  } finally {
    await client.end();
  }
}
