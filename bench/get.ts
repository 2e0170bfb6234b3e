/**
 * G12: one service of ten thousand by its id, authenticated, from the metadata database, against
 * Fastify answering from memory.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Bench } from './lib/bench.ts';
import { openCloud } from './lib/cloud.ts';
import { interleave, measured, partOf, valuesOf } from './lib/measure.ts';
import { insertPaused } from './lib/paused.ts';
import { compared, skipped } from './lib/table.ts';
import { hasWrk, startPeer, wrk, WRK_MISSING } from './lib/wrk.ts';

const SERVICES = 10_000;
const SCRIPT = join(import.meta.dirname, 'lib', 'random-ids.lua');
const LOAD = { connections: 64, seconds: 4 };

export const get: Bench = {
  name: 'get',
  title: `G12: GET one of ${SERVICES} services`,
  run: async ({ here, temp, rounds }) => {
    if (!(await hasWrk())) return [skipped('G12', 'GET one service', WRK_MISSING)];
    const cloud = await openCloud(here.directory);
    const fleet = await insertPaused(cloud, SERVICES);
    const ids = join(temp, 'ids');
    const documents = join(temp, 'documents');
    await writeFile(ids, `${fleet.ids.join('\n')}\n`);
    const { rows } = await fleet.metadata.query<{ line: string }>(
      `select id || ' ' || doc as line from services where project_id = $1`,
      [fleet.projectId],
    );
    await writeFile(documents, rows.map(({ line }) => line).join('\n'));
    const memory = await startPeer(join(import.meta.dirname, 'peers', 'memory-api.ts'), documents);

    const base = new URL(cloud.apiUrl);
    const ours = measured(() =>
      wrk({
        ...LOAD,
        url: base.origin,
        headers: { Authorization: `Bearer ${fleet.key}` },
        script: [SCRIPT, ids, `${base.pathname}/projects/${fleet.projectId}/services/`],
      }),
    );
    const floor = measured(() =>
      wrk({
        ...LOAD,
        url: `http://127.0.0.1:${memory.port}`,
        headers: {},
        script: [SCRIPT, ids, '/services/'],
      }),
    );
    await interleave(rounds, [ours, floor]);
    await memory.end();
    await fleet.remove();
    await cloud.end();
    const row = {
      goal: 'G12',
      against: 'Fastify answering from a Map, no key',
      ratio: 'ours/theirs',
    } as const;
    return [
      compared({
        ...row,
        what: `GET one of ${SERVICES}, 64 connections`,
        unit: 'req/s',
        ours: valuesOf(ours),
        theirs: valuesOf(floor),
        bound: { atLeast: 0.7 },
        limit:
          'the CPU: wrk, Node and PostgreSQL share the cores ' +
          `(p50 ${partOf(ours, 'p50').median} against ${partOf(floor, 'p50').median} ms)`,
      }),
      compared({
        ...row,
        what: `the same, p99`,
        unit: 'ms',
        ours: partOf(ours, 'p99'),
        theirs: partOf(floor, 'p99'),
        bound: { atMost: 2 },
        limit:
          'a round trip to the metadata database for each batch of requests that arrived together',
      }),
    ];
  },
};
