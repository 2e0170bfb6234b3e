import type { Command } from 'commander';
import { noun, verb, type Printing } from '../command.ts';
import { answered, connect } from '../connection.ts';
import { note, say, show, showAs } from '../output.ts';
import { AUTH_VIEW } from '../views.ts';

/** Who one is, and the sessions of the web console, which are cookies. */
export function addAuth(program: Command): void {
  const auth = noun(
    program,
    'auth',
    'See whose key this is, and open and end sessions of the web console.',
  );

  verb(auth, 'info', {
    does: 'Show whose key this is, and what it may.',
    example: 'howdah auth info',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    const { client } = await connect();
    await show(output, await answered(client.GET('/auth/info')), AUTH_VIEW);
  });

  verb(auth, 'session', {
    does: 'Begin a session of the web console with the key, and print its cookie.',
    example: 'howdah auth session',
  }).action(async () => {
    const { client } = await connect();
    const { response } = await client.POST('/auth/sessions');
    sayCookie(response);
  });

  verb(auth, 'open <token>', {
    does: 'Begin a session of the web console with the token of a link, and print its cookie. The link is used up then.',
    example: 'howdah auth open "$(howdah console | sed \'s/.*#//\')"',
  }).action(async (token: string) => {
    const { client } = await connect();
    const { response } = await client.POST('/auth/sessions/open', { body: { token } });
    sayCookie(response);
  });

  verb(auth, 'logout', {
    does: 'End the session that the call carries. Calls of this command line carry a key, which goes on: howdah key revoke ends one.',
    example: 'howdah auth logout',
  }).action(async () => {
    const { client } = await connect();
    await client.POST('/auth/logout');
    note('a key has no session: there is nothing to end');
  });

  const analytics = noun(
    program,
    'analytics',
    'What clients of Tiger Cloud tell about themselves. It is answered, and nothing is kept.',
  );
  for (const [name, does, path] of [
    ['identify', 'Say who one is, which is not kept.', '/analytics/identify'],
    ['track', 'Say what one does, which is not kept.', '/analytics/track'],
  ] as const)
    verb(analytics, name, { does, example: `howdah analytics ${name}`, takes: ['output'] }).action(
      async ({ output }: Printing) => {
        const { client } = await connect();
        const answer = await answered(client.POST(path));
        await showAs(output, answer, 'analytics', () => say(answer.status));
      },
    );
}

/** As a browser would send it. */
function sayCookie(response: Response): void {
  for (const cookie of response.headers.getSetCookie()) say(cookie.split(';', 1)[0]);
}
