/**
 * The services in the data of a control plane that another installation has written to its
 * repository. All of it is input: only rows with the shape of a service are read.
 */
import { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import {
  ADDONS,
  NAME_MAX_CHARACTERS,
  StringEnum,
  VISIBLE_PATTERN,
  type Addon,
} from '@howdah/contract';
import { Type } from 'typebox';
import { Value } from 'typebox/value';
import { stanzaOf } from '../../repository/stanzas.ts';
import type { Upgraded } from '../service/row.ts';
import { UPGRADES_MAX, upgradesOf } from '../service/upgrades.ts';

/** A service of another installation. */
export type BackedUpService = {
  id: string;
  name: string;
  addons: readonly Addon[];
  /** Libraries that its servers load. */
  preload: readonly string[];
  storageGb: number;
  /** The stanzas that may have its data, the desired one first. */
  stanzas: readonly string[];
};

/** The lines of services, as `backup-control` writes them; others are skipped. */
const BEGIN = '{"table":"services","row":{';
/** A line of a service has its document, and those of its read replica sets. */
const LINE_MAX_CHARACTERS = 1_000_000;
/** The most that is decompressed. */
const CONTENTS_MAX_CHARACTERS = 1_000_000_000;
/** More services than an installation has. */
const SERVICES_MAX = 10_000;

const Id = Type.String({ pattern: '^[a-z0-9]{10}$' });

const ServiceLine = Type.Object({
  row: Type.Object({
    id: Id,
    // As for services of this installation, whose names are shown in terminals and pages.
    name: Type.String({ minLength: 1, maxLength: NAME_MAX_CHARACTERS, pattern: VISIBLE_PATTERN }),
    addons: Type.Array(StringEnum(ADDONS)),
    preload: Type.Array(Type.String({ pattern: '^[A-Za-z0-9_-]{1,63}$' }), { maxItems: 100 }),
    storage_gb: Type.Number({ minimum: 0.1, maximum: 1_000_000 }),
    upgrade: Type.Union([
      Type.Null(),
      Type.Object({
        id: Id,
        to: Type.Integer(),
        undo: Type.Boolean(),
        problem: Type.Union([Type.Null(), Type.String()]),
      }),
    ]),
    // Neither a spare, nor a read replica set, nor deleted.
    project_id: Type.String(),
    parent_id: Type.Null(),
    deleted_at: Type.Null(),
  }),
});

/**
 * The services in the compressed data of a control plane, by their names. Deleted ones are not
 * among them.
 *
 * @throws Error when the contents are not the compressed data of a control plane, or are too large
 */
export async function parseServices(contents: Buffer): Promise<BackedUpService[]> {
  const found: BackedUpService[] = [];
  const take = (line: string): void => {
    if (!line.startsWith(BEGIN) || line.length > LINE_MAX_CHARACTERS) return;
    const service = parseLine(line);
    if (service !== null) found.push(service);
    if (found.length > SERVICES_MAX) throw new Error(`it has more than ${SERVICES_MAX} services`);
  };
  const texts = Readable.from([contents]).pipe(createGunzip()).setEncoding('utf8');
  let [line, characters] = ['', 0];
  for await (const text of texts) {
    characters += String(text).length;
    if (characters > CONTENTS_MAX_CHARACTERS)
      throw new Error('it is larger than any control plane');
    for (const [index, part] of String(text).split('\n').entries()) {
      if (index > 0) {
        take(line);
        line = '';
      }
      // The rest of a longer line, which is no service, is not kept.
      if (line.length <= LINE_MAX_CHARACTERS) line += part;
    }
  }
  take(line);
  return found.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

function parseLine(line: string): BackedUpService | null {
  let parsed: unknown;
  try {
    parsed = JSON.parse(line);
  } catch {
    return null;
  }
  if (!Value.Check(ServiceLine, parsed)) return null;
  const { id, name, addons, preload, storage_gb: storageGb, upgrade } = parsed.row;
  const upgraded = parseUpgraded(Reflect.get(parsed.row, 'upgraded'));
  const stanzas = upgradesOf({ upgrade, upgraded }).map((one) => stanzaOf(id, one));
  const known = ADDONS.filter((one) => addons.includes(one));
  return { id, name, addons: known, preload, storageGb, stanzas };
}

/** The upgrades of a service, as far as their ids say which data it has had. */
function parseUpgraded(last: unknown): Upgraded | null {
  const ids: string[] = [];
  let one = last;
  while (typeof one === 'object' && one !== null && ids.length < UPGRADES_MAX) {
    const id: unknown = Reflect.get(one, 'id');
    if (!Value.Check(Id, id)) break;
    ids.push(id);
    one = Reflect.get(one, 'before');
  }
  return ids.reduceRight<Upgraded | null>(
    (before, id) => ({ id, from: null, at: null, before }),
    null,
  );
}
