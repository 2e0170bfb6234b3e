/**
 * Lists: a page where a limit is asked for, else everything; what does not fit into one page is
 * streamed.
 */
import { ApiError, documented } from '@howdah/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Readable } from 'node:stream';
import { Type } from 'typebox';
import { sendStream, sendText } from './reply.ts';

/** The formats of a cursor: a number, or a moment and an id. */
export const CURSORS = {
  number: /^[0-9]{1,18}$/,
  position: /^[0-9]{1,17}-[a-z0-9]{10}$/,
} as const;

/** The members of a list's query. */
export const paging = (cursors: keyof typeof CURSORS) => ({
  limit: Type.Optional(
    Type.String({
      pattern: '^(0*[1-9][0-9]{0,2}|1000)$',
      description: 'at most so many, 1 to 1000; the header Link names the next page',
    }),
  ),
  cursor: Type.Optional(
    Type.String({
      maxLength: 64,
      ...documented({ pattern: CURSORS[cursors].source }),
      description: 'from the header Link',
    }),
  ),
});
type PagingQuery = { limit?: string; cursor?: string };

/**
 * json: finished documents, separated by commas. next: where the page after this one begins; null:
 * this is the last.
 */
export type Page = { json: string; next: string | null };

/** Rows read at a time for a list without a limit. Lists up to here are answered in one piece. */
const ROWS = 1024;

/** The page of rows. One row more than `limit` was read: it shows whether there is another page. */
export function pageOf<Row>(
  rows: readonly Row[],
  limit: number,
  document: (row: Row) => object,
  cursor: (row: Row) => string,
): Page {
  const shown = rows.slice(0, limit);
  const last = shown.at(-1);
  return {
    json: shown.map((row) => JSON.stringify(document(row))).join(','),
    next: last === undefined || rows.length <= limit ? null : cursor(last),
  };
}

/**
 * Answers a list.
 *
 * @param read reads the page of at most `limit` documents that begins after a cursor; null: the
 *   first
 */
export async function sendList(
  request: FastifyRequest<{ Querystring: PagingQuery }>,
  reply: FastifyReply,
  cursors: keyof typeof CURSORS,
  read: (after: string | null, limit: number) => Promise<Page>,
): Promise<FastifyReply> {
  const { limit, cursor } = request.query;
  if (cursor !== undefined && !CURSORS[cursors].test(cursor))
    throw new ApiError(
      'INVALID_REQUEST',
      `cursor: found ${JSON.stringify(cursor)}; allowed is the one that the header Link of ` +
        'the page before names',
    );
  const first = await read(cursor ?? null, limit === undefined ? ROWS : Number(limit));
  if (first.next === null) return sendText(reply, 200, `[${first.json}]`);
  if (limit !== undefined) {
    const [path = '', search] = request.url.split('?');
    const query = new URLSearchParams(search);
    query.set('cursor', first.next);
    return sendText(
      reply.header('Link', `<${path}?${query.toString()}>; rel="next"`),
      200,
      `[${first.json}]`,
    );
  }
  return sendStream(
    reply,
    'application/json',
    Readable.from(
      wholeList(first, (after) => read(after, ROWS)),
      { objectMode: false },
    ),
  );
}

async function* wholeList(
  first: Page,
  read: (after: string) => Promise<Page>,
): AsyncGenerator<string> {
  yield `[${first.json}`;
  for (let { next } = first; next !== null;) {
    const page = await read(next);
    if (page.json !== '') yield `,${page.json}`;
    next = page.next;
  }
  yield ']';
}
