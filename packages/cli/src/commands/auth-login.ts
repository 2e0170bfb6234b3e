/** Logins without a key: a person approves them in the web console, or with a key of their own. */
import { createClient, HowdahError, type HowdahClient, type Schemas } from '@howdah/client';
import { EnvironmentError } from '@howdah/client/node';
import { ROLE_SUMMARIES } from '@howdah/contract/permissions';
import { quoted } from '@howdah/contract/shell';
import { ROLES, type Role } from '@howdah/contract/types';
import { Option, type Command } from 'commander';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { given, verb, type Changing, type Printing } from '../command.ts';
import { answered, accessWithoutKey, connect } from '../connection.ts';
import { Failure } from '../exit.ts';
import { momentIfGiven } from '../moment.ts';
import { note, say, showAs } from '../output.ts';

type ApproveOptions = Changing & { role: Role; expires?: string };

export function addLogin(auth: Command): void {
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
