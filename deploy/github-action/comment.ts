/** The one comment that the action keeps in a pull request. */

export type PullRequest = Readonly<{
  number: number;
  /** OWNER/NAME */
  repository: string;
  apiUrl: string;
  token: string;
}>;

const PAGE = 100;

/**
 * Writes a comment, or the one of an earlier push again.
 *
 * @param mark finds it, and is not shown
 * @throws Error with the answer of GitHub
 */
export async function keepComment(on: PullRequest, mark: string, body: string): Promise<void> {
  const hidden = `<!-- howdah ${mark} -->`;
  const comments = `/repos/${on.repository}/issues`;
  const written = { body: `${hidden}\n${body}` };
  const id = await findComment(on, `${comments}/${on.number}/comments`, hidden);
  if (id === null) await call(on, 'POST', `${comments}/${on.number}/comments`, written);
  else await call(on, 'PATCH', `${comments}/comments/${id}`, written);
}

async function findComment(on: PullRequest, path: string, mark: string): Promise<number | null> {
  for (let page = 1; ; page++) {
    const found = await call(on, 'GET', `${path}?per_page=${PAGE}&page=${page}`);
    if (!Array.isArray(found)) throw new Error('GitHub answered the list of comments otherwise');
    for (const comment of found.map(Object)) {
      const [id, body] = [Reflect.get(comment, 'id'), Reflect.get(comment, 'body')];
      if (typeof body === 'string' && body.startsWith(mark) && typeof id === 'number') return id;
    }
    if (found.length < PAGE) return null;
  }
}

async function call(on: PullRequest, method: string, path: string, body?: object) {
  const answer = await fetch(`${on.apiUrl}${path}`, {
    method,
    headers: {
      accept: 'application/vnd.github+json',
      authorization: `Bearer ${on.token}`,
      'content-type': 'application/json',
      'user-agent': 'howdah',
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  }).catch((error: unknown) => {
    // An error of `fetch` has the reason as its cause only.
    const { cause } = Object(error);
    throw new Error(`the comment was not written: ${on.apiUrl} does not answer: ${cause ?? error}`);
  });
  const said = await answer.text();
  if (answer.ok) return JSON.parse(said) as unknown;
  const hint = answer.status === 403 ? ': the job needs `permissions: pull-requests: write`' : '';
  throw new Error(`the comment was not written${hint}: ${answer.status} ${said.slice(0, 300)}`);
}
