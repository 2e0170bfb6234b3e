import type { Command } from 'commander';
import { noun, verb, type Printing } from '../command.ts';
import { answered, connect } from '../connection.ts';
import { note, say, show, showAs } from '../output.ts';
import { AUTH_VIEW } from '../views.ts';
import { addLogin } from './auth-login.ts';

/** The key in use, sessions of the web console, which are cookies, and logins of programs. */
export function addAuth(program: Command): void {
  const auth = noun(
    program,
    'auth',
    'Show the key in use, log in, approve logins, and open and end sessions of the web console.',
  );

  verb(auth, 'info', {
    does: 'Show the key in use, its project and its role.',
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
    does: 'Begin a session of the web console with the token of a link, and print its cookie. The link works only once.',
    example: 'howdah auth open "$(howdah console | sed \'s/.*#//\')"',
  }).action(async (token: string) => {
    const { client } = await connect();
    const { response } = await client.POST('/auth/sessions/open', { body: { token } });
    sayCookie(response);
  });

  verb(auth, 'logout', {
    does: 'End the session of the call. The command line uses a key instead, which stays valid: howdah key revoke revokes one.',
    example: 'howdah auth logout',
  }).action(async () => {
    const { client } = await connect();
    await client.POST('/auth/logout');
    note('no session to end: the command line uses a key');
  });

  addLogin(auth);

  verb(program, 'feedback <message>', {
    does: 'Send a message to the operator, who finds it in the control log.',
    example: "howdah feedback 'the disk is full again'",
    takes: ['output'],
  }).action(async (message: string, { output }: Printing) => {
    const { client } = await connect();
    const body = { message, source: 'cli', os: process.platform };
    const answer = await answered(client.POST('/feedback', { body }));
    await showAs(output, answer, 'feedback', () => say('sent'));
  });

  const analytics = noun(
    program,
    'analytics',
    'Analytics calls of Tiger Cloud clients. They are answered; nothing is stored.',
  );
  for (const [name, does, path] of [
    ['identify', 'Send an identify call; nothing is stored.', '/analytics/identify'],
    ['track', 'Send a track call; nothing is stored.', '/analytics/track'],
  ] as const)
    verb(analytics, name, { does, example: `howdah analytics ${name}`, takes: ['output'] }).action(
      async ({ output }: Printing) => {
        const { client } = await connect();
        const answer = await answered(client.POST(path));
        await showAs(output, answer, 'analytics', () => say(answer.status));
      },
    );
}

/** The cookie as a browser sends it. */
function sayCookie(response: Response): void {
  for (const cookie of response.headers.getSetCookie()) say(cookie.split(';', 1)[0]);
}
