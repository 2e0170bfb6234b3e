import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Command, Option } from 'commander';
import { createClient, HowdahError, type HowdahClient, type Schemas } from '@howdah/client';
import { EnvironmentError } from '@howdah/client/node';
import { ROLE_SUMMARIES } from '@howdah/contract/permissions';
import { quoted } from '@howdah/contract/shell';
import { ROLES, type Role } from '@howdah/contract/types';
import { noun, verb, type Printing, given, type Changing } from '../command.ts';
import { answered, connect, accessWithoutKey, credentials } from '../connection.ts';
import { note, say, show, showAs } from '../output.ts';
import { AUTH_VIEW } from '../views.ts';
import { Failure } from '../exit.ts';
import { momentIfGiven } from '../moment.ts';

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
    does:
      'Begin a session of the web console with the token of a link, and print its cookie. ' +
      'The link works only once.',
    example: 'howdah auth open "$(howdah console | sed \'s/.*#//\')"',
  }).action(async (token: string) => {
    const { client } = await connect();
    const { response } = await client.POST('/auth/sessions/open', { body: { token } });
    sayCookie(response);
  });

  verb(auth, 'logout', {
    does:
      'End the session of the call. The command line uses a key instead, which stays valid: ' +
      'howdah key revoke revokes one.',
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

// Logins without a key: a person approves them in the web console, or with a key of their own.

type ApproveOptions = Changing & { role: Role; expires?: string };

function addLogin(auth: Command): void {
  verb(auth, 'login [address]', {
    does:
      'Get a key for this machine, which a person approves in the web console. Prints it as ' +
      'shell variables, as howdah env does.',
    example: 'eval "$(howdah auth login https://db.example.com:8080)"',
    takes: ['output'],
  }).action(async (address: string | undefined, { output }: Printing) => {
    const { client, apiUrl } = await clientWithoutKey(address);
    const body = { client_name: `howdah on ${hostname()}`.slice(0, 128) };
    const login = await answered(client.POST('/auth/device', { body }));
    note(`Open ${login.verification_uri} in a browser and approve the code ${login.user_code}`);
    note(`(waiting for ${Math.round(login.expires_in / 60)} minutes)`);
    const key = await collect(client, login);
    const variables = {
      HD_API: apiUrl,
      HD_PROJECT: `${apiUrl}/projects/${key.project_id}`,
      HD_KEY: key.access_token,
    };
    const asTable = (): void => {
      for (const [name, value] of Object.entries(variables)) say(`export ${name}=${quoted(value)}`);
    };
    await showAs(output, { ...key, api_url: apiUrl }, 'login', asTable, variables);
  });

  addAnswers(auth);
}

/** A client of the API at an address; default: the one of the environment or of this machine. */
async function clientWithoutKey(address: string | undefined) {
  try {
    const options = await accessWithoutKey(address);
    return { apiUrl: options.apiUrl, client: createClient(options) };
  } catch (error) {
    if (address === undefined || !(error instanceof EnvironmentError)) throw error;
    throw new Failure(error.message.replace(/^HD_API/, 'address'), 'usage');
  }
}

/** Asks until somebody has answered: only a login that waits is in a wrong state. */
async function collect(
  client: HowdahClient,
  { device_code, interval }: Schemas['DeviceLogin'],
): Promise<Schemas['LoginKey']> {
  for (;;) {
    await sleep(interval * 1000);
    try {
      return await answered(client.POST('/auth/device/token', { body: { device_code } }));
    } catch (error) {
      if (!(error instanceof HowdahError && error.code === 'INVALID_STATE')) throw error;
    }
  }
}

function addAnswers(auth: Command): void {
  verb(auth, 'device <user-code>', {
    does: 'Show the login that waits with a code: the program, and where it runs.',
    example: 'howdah auth device BCDF-GHJK',
    takes: ['output'],
  }).action(async (code: string, { output }: Printing) => {
    const { client } = await connect();
    const found = await answered(client.POST('/auth/device/find', { body: { user_code: code } }));
    await showAs(output, found, 'login', () => {
      say(`${found.client_name}, from ${found.address}, since ${found.created}`);
      say('Approve it only if you began it yourself.');
    });
  });

  verb(auth, 'approve <user-code>', {
    does: 'Approve a login: its program gets a key of this project.',
    example: 'howdah auth approve BCDF-GHJK --role developer --expires +90d',
    takes: ['output', 'dryRun'],
  })
    .addOption(
      new Option('--role <role>', ROLES.map((role) => `${role} ${ROLE_SUMMARIES[role]}`).join('; '))
        .choices(ROLES)
        .default('developer'),
    )
    .option(
      '--expires <time>',
      'when the key expires: +90d or 2027-01-31T12:00:00Z; default: never',
    )
    .action(async (code: string, options: ApproveOptions) => {
      const { client } = await connect(options);
      const body = {
        user_code: code,
        role: options.role,
        ...given('expires_at', momentIfGiven('--expires', options.expires)),
      };
      const done = await answered(client.POST('/auth/device/approve', { body }));
      await showAs(options.output, done, 'login', () => say(done.message));
    });

  verb(auth, 'deny <user-code>', {
    does: 'Deny a login: its program gets no key.',
    example: 'howdah auth deny BCDF-GHJK',
    takes: ['output', 'dryRun'],
  }).action(async (code: string, options: Changing) => {
    const { client } = await connect(options);
    const done = await answered(client.POST('/auth/device/deny', { body: { user_code: code } }));
    await showAs(options.output, done, 'login', () => say(done.message));
  });
}

export function addConsole(program: Command): void {
  verb(program, 'console', {
    does:
      'Print a link that opens the web console with the key of this command line. ' +
      'It works once, within an hour.',
    example: 'howdah console',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    const { client, apiUrl } = await connect();
    const link = await answered(client.POST('/auth/links'));
    await showAs(output, link, 'link', () => say(new URL(link.path, apiUrl).href));
  });
}

export function addEnv(program: Command): void {
  verb(program, 'env', {
    does:
      'Print the address of the API, the project and the key as shell variables, ' +
      'which clients and other commands read.',
    example: 'eval "$(howdah env)"',
  }).action(async () => {
    const { apiUrl, projectId, key } = await credentials();
    // Not HOWDAH_…: these would be settings of the next start.
    const variables = {
      HD_API: apiUrl,
      HD_PROJECT: `${apiUrl}/projects/${projectId}`,
      HD_KEY: key,
    };
    for (const [name, value] of Object.entries(variables)) say(`export ${name}=${quoted(value)}`);
  });
}
