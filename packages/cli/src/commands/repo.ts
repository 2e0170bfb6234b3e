/** `howdah repo`: where backups are kept off the machine. */
import { readFile } from 'node:fs/promises';
import type { Command } from 'commander';
import type { Schemas } from '@howdah/client';
import {
  countOf,
  given,
  noun,
  oneOf,
  verb,
  type Changing,
  type Destroying,
  type Printing,
} from '../command.ts';
import { answered, connect, type Connection } from '../connection.ts';
import { Failure } from '../exit.ts';
import { find, type ListedKind } from '../find.ts';
import { note, say, sayJson, show, showAs, showList } from '../output.ts';
import { confirmCall } from '../permission.ts';
import { REPOSITORY_VIEW } from '../views.ts';

type Adding = Changing & {
  s3?: string;
  azure?: string;
  gcs?: true;
  sftp?: string;
  path?: string;
  bucket?: string;
  container?: string;
  region?: string;
  uriStyle?: string;
  user?: string;
  keyId?: string;
  keyFile?: string;
  sas?: true;
  endpoint?: string;
  caFile?: string;
  hostFingerprint?: string;
  retentionDays?: string;
  kit?: string;
  takeOver?: string;
};

export function addRepo(program: Command): void {
  const repo = noun(
    program,
    'repo',
    'Keep the backups of all services off this machine too (docs/repositories.md).',
  );
  verb(repo, 'add <name>', {
    does: 'Send the backups of all services to a repository, encrypted on this machine.',
    example:
      'howdah repo add offsite --s3 https://s3.example.com --bucket backups ' +
      '--region eu-west-1 --key-id AKIA… --key-file s3.key',
    takes: ['output', 'dryRun'],
  })
    .option('--s3 <endpoint>', 'an S3 bucket: the address of the server, https://HOST')
    .option('--azure <account>', 'a container of Azure Blob Storage')
    .option('--gcs', 'a bucket of Google Cloud Storage')
    .option('--sftp <host>', 'an SFTP server: HOST or HOST:PORT')
    .option('--path <directory>', 'a directory on another disk; elsewhere, the one in the bucket')
    .option('--bucket <name>', 's3, gcs: the bucket')
    .option('--container <name>', 'azure: the container')
    .option('--region <region>', 's3: the region of the bucket')
    .option(
      '--endpoint <address>',
      'azure, gcs: the server of another cloud than the public one, https://HOST',
    )
    .option(
      '--uri-style <style>',
      's3, azure: host, or path for servers that have no names for buckets and accounts',
    )
    .option('--user <name>', 'sftp: the user')
    .option('--key-id <id>', 's3: the access key id')
    .option('--key-file <file>', 'a file with the secret key, - for standard input')
    .option('--sas', 'azure: the key is a shared access signature')
    .option('--ca-file <file>', 's3, azure, gcs: certificates that sign the server’s')
    .option('--host-fingerprint <digits>', 'sftp: the SHA-256 of the host’s key, in hexadecimal')
    .option('--retention-days <number>', 'for how long backups are kept; default: 14')
    .option('--kit <file>', 'a repository that has backups already: its recovery kit')
    .option('--take-over <id>', 'the installation that owns the repository and no longer runs')
    .action(async (name: string, options: Adding) => {
      const connection = await connect(options);
      const body = await bodyOf(name, options);
      const made = await answered(connection.client.POST('/repositories', { body }));
      await showAs(options.output, made, REPOSITORY_VIEW.noun, () => {
        say(`The backups go to ${made.location} from now on.`);
        say(
          'Without its recovery kit nobody can read them: ' +
            `howdah repo kit ${name} > FILE, and keep the file elsewhere.`,
        );
      });
    });

  verb(repo, 'list', {
    does: 'List the repositories.',
    example: 'howdah repo list',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    await showList(output, await REPOSITORIES.list(await connect()), REPOSITORY_VIEW);
  });

  verb(repo, 'show <repository>', {
    does: 'Show a repository.',
    example: 'howdah repo show offsite',
    takes: ['output'],
  }).action(async (wanted: string, { output }: Printing) => {
    const connection = await connect();
    const params = await pathOf(connection, wanted);
    const found = connection.client.GET('/repositories/{repository_id}', { params });
    await show(output, await answered(found), REPOSITORY_VIEW);
  });

  verb(repo, 'check <repository>', {
    does: 'Write, read and remove an object in a repository now.',
    example: 'howdah repo check offsite',
    takes: ['output', 'dryRun'],
  }).action(async (wanted: string, options: Changing) => {
    const connection = await connect(options);
    const params = await pathOf(connection, wanted);
    const checked = connection.client.POST('/repositories/{repository_id}/check', { params });
    await show(options.output, await answered(checked), REPOSITORY_VIEW);
  });

  verb(repo, 'kit <repository>', {
    does: 'Print the recovery kit of a repository, a secret: address, credentials, passphrase.',
    example: 'howdah repo kit offsite > recovery-kit.json',
    takes: ['output', 'dryRun'],
  }).action(async (wanted: string, options: Changing) => {
    const connection = await connect(options);
    const params = await pathOf(connection, wanted);
    const kit = await answered(
      connection.client.POST('/repositories/{repository_id}/recoveryKit', { params }),
    );
    await showAs(options.output, kit, 'kit', () => sayJson(kit, 2));
    note(
      'Keep it where neither this machine nor the repository is: with it, all data can be read.',
    );
  });

  verb(repo, 'remove <repository>', {
    does: 'Send no more backups to a repository, which stay. Asks for confirmation on a terminal.',
    example: 'howdah repo remove offsite',
    takes: ['dryRun', 'yes'],
  }).action(async (wanted: string, options: Destroying) => {
    const connection = await connect(options);
    const params = await pathOf(connection, wanted);
    await confirmCall(
      connection,
      'deleteRepository',
      `Send no more backups to ${wanted}?`,
      options,
    );
    await connection.client.DELETE('/repositories/{repository_id}', { params });
    note(`${wanted} gets no more backups; those in it stay, and repo add goes on with them`);
  });
}

const TYPES = ['s3', 'azure', 'gcs', 'sftp'] as const;

/** The body of a create. @throws Failure for contradicting options */
async function bodyOf(name: string, options: Adding): Promise<Schemas['CreateRepository']> {
  const types = TYPES.filter((one) => options[one] !== undefined);
  const [type = 'path'] = types;
  if (types.length > 1)
    throw new Failure(`--${types.join(', --')}: name one of them only`, 'usage');
  if (type === 'path' && options.path === undefined)
    throw new Failure('name one of --s3, --azure, --gcs, --sftp and --path', 'usage');
  if (options.s3 !== undefined && options.endpoint !== undefined)
    throw new Failure('--endpoint: the address of an S3 server is the value of --s3', 'usage');
  const key = options.keyFile === undefined ? undefined : await readSecret(options.keyFile);
  const [host, port] = options.sftp?.split(':') ?? [];
  return {
    name,
    type,
    ...given('endpoint', options.s3 ?? options.endpoint),
    ...given('account', options.azure),
    ...given('host', host),
    ...given('port', port === undefined ? undefined : countOf('--sftp', port)),
    ...given('path', options.path),
    ...given('bucket', options.bucket),
    ...given('container', options.container),
    ...given('region', options.region),
    ...given(
      'uri_style',
      options.uriStyle === undefined
        ? undefined
        : oneOf('--uri-style', ['host', 'path'], options.uriStyle),
    ),
    ...given('user', options.user),
    ...given('key_id', options.keyId),
    ...given(type === 'sftp' ? 'private_key' : 'key', key),
    ...given('key_type', options.sas === undefined ? undefined : ('sas' as const)),
    ...given(
      'ca_pem',
      options.caFile === undefined ? undefined : await readFile(options.caFile, 'utf8'),
    ),
    ...given('host_fingerprint', options.hostFingerprint),
    ...given(
      'retention_days',
      options.retentionDays === undefined
        ? undefined
        : countOf('--retention-days', options.retentionDays),
    ),
    ...given('passphrase', options.kit === undefined ? undefined : await readKit(options.kit)),
    ...given('take_over', options.takeOver),
  };
}

/** A secret from a file or from standard input, without the newline at its end. */
async function readSecret(file: string): Promise<string> {
  const text = await readFile(file === '-' ? '/dev/stdin' : file, 'utf8');
  const secret = text.replace(/\n$/, '');
  if (secret === '') throw new Failure(`--key-file: ${file} is empty`, 'usage');
  return secret;
}

/** The passphrase in a recovery kit. @throws Failure for a file that is none */
async function readKit(file: string): Promise<string> {
  const text = await readFile(file === '-' ? '/dev/stdin' : file, 'utf8');
  let kit: unknown;
  try {
    kit = JSON.parse(text);
  } catch {
    kit = null;
  }
  const passphrase: unknown = Reflect.get(Object(kit), 'passphrase');
  if (typeof passphrase !== 'string')
    throw new Failure(`--kit: ${file} is no recovery kit: howdah repo kit prints one`, 'usage');
  return passphrase;
}

const REPOSITORIES: ListedKind<Schemas['Repository']> = {
  one: 'repository',
  many: 'repositories',
  shownBy: 'howdah repo list',
  id: ({ id }) => id,
  name: ({ name }) => name,
  list: async ({ client }) => answered(client.GET('/repositories')),
};

async function pathOf(connection: Connection, wanted: string) {
  return { path: { repository_id: (await find(connection, REPOSITORIES, wanted)).id } };
}
