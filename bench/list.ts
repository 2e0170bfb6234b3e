/**
 * G13: the list of a thousand services, against the same by hand from stored
 * documents and from rows.
 */
import { join } from 'node:path';
import type { Bench } from './lib/bench.ts';
import { openCloud } from './lib/cloud.ts';
import { interleave, measured, partOf, valuesOf, type Case } from './lib/measure.ts';
import { insertPaused } from './lib/paused.ts';
import { compared, skipped } from './lib/table.ts';
import { hasWrk, startPeer, wrk, WRK_MISSING } from './lib/wrk.ts';
import { prepareMachine } from '../packages/server/src/engine/local/host/machine.ts';

const SERVICES = 1000;
const LOAD = { connections: 8, seconds: 4 };

export const list: Bench = {
  name: 'list',
  title: `G13: list ${SERVICES} services`,
  run: async ({ here, rounds }) => {
    if (!(await hasWrk())) return [skipped('G13', 'list', WRK_MISSING)];
    const cloud = await openCloud(here.directory);
    const fleet = await insertPaused(cloud, SERVICES);
    const socket = (await prepareMachine(cloud.home)).layout.store.socket;
    const peer = await startPeer(
      join(import.meta.dirname, 'peers', 'list-api.ts'),
      socket,
      fleet.projectId,
    );
    const headers = { Authorization: `Bearer ${fleet.key}` };
    const ours = measured(() =>
      wrk({ ...LOAD, url: `${cloud.apiUrl}/projects/${fleet.projectId}/services`, headers }),
    );
    const byHand = (path: string): Case =>
      measured(() => wrk({ ...LOAD, url: `http://127.0.0.1:${peer.port}${path}`, headers: {} }));
    const documents = byHand('/documents');
    const rows = byHand('/rows');
    await interleave(rounds, [ours, documents, rows]);
    await peer.end();
    await fleet.remove();
    await cloud.end();
    const row = {
      goal: 'G13',
      what: `list of ${SERVICES}, 8 connections`,
      unit: 'req/s',
      ours: valuesOf(ours),
    } as const;
    return [
      compared({
        ...row,
        against: 'node:http, stored documents, string_agg',
        theirs: valuesOf(documents),
        ratio: 'ours/theirs',
        bound: { atLeast: 0.85 },
        limit:
          'PostgreSQL: sort and join of the documents, and moving 400 KB an answer ' +
          `(p50 ${partOf(ours, 'p50').median} against ${partOf(documents, 'p50').median} ms)`,
      }),
      compared({
        ...row,
        against: 'node:http, rows → objects → JSON',
        theirs: valuesOf(rows),
        ratio: 'ours/theirs',
        bound: { atLeast: 4 },
        limit:
          'of the peer: pg’s parsing and JSON.stringify ' +
          `(p50 ${partOf(rows, 'p50').median} ms)`,
      }),
    ];
  },
};
