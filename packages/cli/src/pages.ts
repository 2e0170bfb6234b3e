/** Joins the pages of a list, so that users need no cursors. */
import { given } from './command.ts';
import { Failure } from './exit.ts';

/** The largest page of the API. */
const PAGE = 1000;

type Answer<T> = Promise<{ data?: readonly T[]; response: Response }>;

/** The first entries of a list. @param read reads a page */
export async function firstOf<T>(
  limit: number,
  read: (page: { limit: string; cursor?: string }) => Answer<T>,
): Promise<T[]> {
  const found: T[] = [];
  let cursor: string | undefined;
  do {
    const { data, response } = await read({
      limit: String(Math.min(limit - found.length, PAGE)),
      ...given('cursor', cursor),
    });
    if (data === undefined) throw new Failure('the server answered without a body');
    found.push(...data);
    cursor = nextOf(response);
  } while (cursor !== undefined && found.length < limit);
  return found;
}

/** The cursor of the next page. */
function nextOf({ headers, url }: Response): string | undefined {
  const [, next] = /<([^>]+)>; rel="next"/.exec(headers.get('Link') ?? '') ?? [];
  return next === undefined
    ? undefined
    : (new URL(next, url || 'http://api').searchParams.get('cursor') ?? undefined);
}
