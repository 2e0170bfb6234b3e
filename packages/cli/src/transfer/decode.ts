/**
 * Reads the messages of PostgreSQL's output plugin pgoutput, protocol version 1:
 * https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
 */
import { Failure } from '../exit.ts';
import type { Named } from './catalog.ts';

/** A value as text; null: SQL's null; undefined: not sent, because it did not change (TOAST). */
export type Value = string | null | undefined;

export type Relation = Named & {
  id: number;
  /** Whether rows are identified by all their columns. */
  isFull: boolean;
  columns: { name: string; isKey: boolean }[];
};

export type Change =
  | { kind: 'begin'; commitLsn: bigint }
  | { kind: 'commit'; endLsn: bigint }
  | { kind: 'relation'; relation: Relation }
  | { kind: 'insert'; relation: number; row: Value[] }
  | { kind: 'update'; relation: number; old: Value[] | null; row: Value[] }
  | { kind: 'delete'; relation: number; old: Value[] }
  | { kind: 'truncate'; relations: number[]; cascade: boolean; restart: boolean }
  | { kind: 'other' };

/** Reads one message after its first byte. */
class Reader {
  private at = 1;
  private readonly data: Buffer;

  constructor(data: Buffer) {
    this.data = data;
  }

  byte(): number {
    return this.data.readUInt8(this.at++);
  }

  int16(): number {
    this.at += 2;
    return this.data.readInt16BE(this.at - 2);
  }

  int32(): number {
    this.at += 4;
    return this.data.readUInt32BE(this.at - 4);
  }

  int64(): bigint {
    this.at += 8;
    return this.data.readBigUInt64BE(this.at - 8);
  }

  text(): string {
    const end = this.data.indexOf(0, this.at);
    const text = this.data.toString('utf8', this.at, end);
    this.at = end + 1;
    return text;
  }

  tuple(): Value[] {
    return Array.from({ length: this.int16() }, () => this.value());
  }

  private value(): Value {
    const kind = String.fromCharCode(this.byte());
    switch (kind) {
      case 'n':
        return null;
      case 'u':
        return undefined;
      case 't': {
        const length = this.int32();
        this.at += length;
        return this.data.toString('utf8', this.at - length, this.at);
      }
      default:
        throw new Failure(`the source sent a value of the unknown kind ${kind}`);
    }
  }
}

/** @throws Failure for a message that is not of this protocol */
export function decode(data: Buffer): Change {
  const reader = new Reader(data);
  const kind = String.fromCharCode(data.readUInt8(0));
  switch (kind) {
    case 'B':
      return { kind: 'begin', commitLsn: reader.int64() };
    case 'C':
      reader.byte(); // flags, unused
      reader.int64(); // the position of the commit; the end is what is applied
      return { kind: 'commit', endLsn: reader.int64() };
    case 'R':
      return { kind: 'relation', relation: relationIn(reader) };
    case 'I':
      return { kind: 'insert', relation: reader.int32(), row: tupleAfter(reader) };
    case 'U':
      return updateIn(reader);
    case 'D':
      return { kind: 'delete', relation: reader.int32(), old: tupleAfter(reader) };
    case 'T':
      return truncateIn(reader);
    default:
      return { kind: 'other' }; // types, origins, messages
  }
}

/** A tuple after the byte that names it. */
function tupleAfter(reader: Reader): Value[] {
  reader.byte();
  return reader.tuple();
}

function updateIn(reader: Reader): Change {
  const relation = reader.int32();
  const isNew = String.fromCharCode(reader.byte()) === 'N';
  if (isNew) return { kind: 'update', relation, old: null, row: reader.tuple() };
  const old = reader.tuple();
  return { kind: 'update', relation, old, row: tupleAfter(reader) };
}

function truncateIn(reader: Reader): Change {
  const count = reader.int32();
  const options = reader.byte();
  const relations = Array.from({ length: count }, () => reader.int32());
  return { kind: 'truncate', relations, cascade: (options & 1) > 0, restart: (options & 2) > 0 };
}

function relationIn(reader: Reader): Relation {
  const [id, schema, name] = [reader.int32(), reader.text(), reader.text()];
  const isFull = String.fromCharCode(reader.byte()) === 'f';
  const columns = Array.from({ length: reader.int16() }, () => {
    const isKey = (reader.byte() & 1) > 0;
    const column = { name: reader.text(), isKey };
    reader.int32(); // type
    reader.int32(); // type modifier
    return column;
  });
  // The system's own schema comes as an empty name.
  return { id, schema: schema === '' ? 'pg_catalog' : schema, name, isFull, columns };
}

/** A position as a number: `16/B374D848`. */
export function numberOf(lsn: string): bigint {
  const [high = '0', low = '0'] = lsn.split('/');
  return (BigInt(`0x${high}`) << 32n) | BigInt(`0x${low}`);
}

export function lsnOf(position: bigint): string {
  return `${(position >> 32n).toString(16)}/${(position & 0xffffffffn).toString(16)}`.toUpperCase();
}
