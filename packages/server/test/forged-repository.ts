/**
 * Forges what pgBackRest has written in a repository, as the owner of its passphrase can: the list
 * of backups (backup.info) and the list of files of a backup (backup.manifest).
 */
import { createHash } from 'node:crypto';
import { runPgBackRest } from '../test-repositories/probe.ts';
import type { PgBackRest, Repository } from './probe.ts';

type Change = (text: string) => string;
type Forgery = readonly [what: string, change: () => Promise<void>];
export type Forged = {
  /** Lists of backups. */
  infos: readonly Forgery[];
  /** Lists of files, some of which are in a directory elsewhere. */
  manifests: (elsewhere: string) => readonly Forgery[];
};

/** Opens the files of a stanza. Each change begins with what pgBackRest has written. */
export async function openForged(
  program: PgBackRest,
  repository: Repository,
  stanza: string,
): Promise<Forged> {
  const call = async (command: string, name: string, key: string, input?: Buffer) => {
    const { stdout } = await runPgBackRest(program, repository, {
      command: [command, `backup/${stanza}/${name}`],
      asked: 'be forged',
      options: { 'cipher-pass': key },
      ...(input === undefined ? {} : { input }),
    });
    return stdout.toString('utf8');
  };
  const { passphrase } = repository;
  const info = await call('repo-get', 'backup.info', passphrase);
  const key = groupOf(/^cipher-pass="(.*)"$/m, info);
  const labels = [...info.matchAll(/^([0-9FDI_-]+)=\{"backrest-format/gm)];
  const label = labels.at(-1)?.[1] ?? '';
  const manifestName = `${label}/backup.manifest`;
  const manifest = await call('repo-get', manifestName, key);
  const put = async (name: string, secret: string, text: string): Promise<void> => {
    // pgBackRest reads the copy if the file is damaged.
    for (const one of [name, `${name}.copy`])
      await call('repo-put', one, secret, Buffer.from(text, 'utf8'));
  };
  const ofInfo = ([what, change]: readonly [string, Change]): Forgery => [
    what,
    () => put('backup.info', passphrase, signed(changed(what, info, change))),
  ];
  return {
    infos: [
      ...INFOS.map(ofInfo),
      ofInfo(['a label that is a path', (text) => text.replaceAll(`\n${label}=`, '\n../../x=')]),
      ['no list at all', () => put('backup.info', passphrase, '{"pg": [1, null')],
    ],
    manifests: (elsewhere) =>
      manifestsOf(elsewhere).map(([what, change]) => [
        what,
        async () => {
          await put('backup.info', passphrase, info);
          await put(manifestName, key, signed(changed(what, manifest, change)));
        },
      ]),
  };
}

function changed(what: string, text: string, change: Change): string {
  const after = change(text);
  if (after === text) throw new Error(`${what}: nothing was changed`);
  return after;
}

function groupOf(pattern: RegExp, text: string): string {
  const [, group] = pattern.exec(text) ?? [];
  if (group === undefined) throw new Error(`${pattern.source} is not in the file`);
  return group;
}

/** Changes the facts of all snapshots, which are annotations of their backups. */
const withFacts =
  (facts: object): Change =>
  (text) =>
    text.replaceAll(/"snapshot":"([\w+/=]+)"/g, (_, encoded: string) => {
      const all: object = JSON.parse(Buffer.from(encoded, 'base64').toString('utf8'));
      const forged = JSON.stringify({ ...all, ...facts });
      return `"snapshot":"${Buffer.from(forged, 'utf8').toString('base64')}"`;
    });

const replaced =
  (from: RegExp, to: string): Change =>
  (text) =>
    text.replaceAll(from, to);

const INFOS: readonly (readonly [string, Change])[] = [
  ['a snapshot whose id is a path', withFacts({ id: '../../../escaped' })],
  ['a snapshot of no moment', withFacts({ takenMs: 'soon' })],
  ['a snapshot of a moment that no calendar has', withFacts({ takenMs: 1e300 })],
  ['a first WAL file that is a path', withFacts({ firstWal: '../../../etc/passwd' })],
  ['facts of another type', replaced(/"snapshot":"[\w+/=]+"/g, '"snapshot":"7"')],
  ['a negative size', replaced(/"backup-info-size":\d+/g, '"backup-info-size":-1')],
  ['a size that is a text', replaced(/"backup-info-size":\d+/g, '"backup-info-size":"x"')],
  ['more data than disks have', replaced(/"backup-info-size":\d+/g, '"backup-info-size":9e15')],
  ['a version that is none', replaced(/"db-version":"\d+"/g, '"db-version":"../.."')],
  ['a database that does not exist', replaced(/"db-id":1/g, '"db-id":2000000000')],
];

const manifestsOf = (elsewhere: string): readonly (readonly [string, Change])[] => [
  [
    'a file elsewhere',
    replaced(
      /\npg_data\/base\/1\/112=/g,
      `\npg_data/${'../'.repeat(20)}${elsewhere.slice(1)}/file=`,
    ),
  ],
  [
    'a tablespace elsewhere',
    (text) => {
      const space = 'pg_data/pg_tblspc/1';
      const names = '"tablespace-id":"1","tablespace-name":"x"';
      const target = `{"path":"${elsewhere}",${names},"type":"link"}`;
      const link = `[target:link]\n${space}={"destination":"${elsewhere}"}\n`;
      return text
        .replace('\n[cipher]', `${space}=${target}\n\n[cipher]`)
        .replace(
          '[target:path]\n',
          `${link}\n[target:link:default]\ngroup=false\nuser=false\n\n[target:path]\n`,
        )
        .replace('\npg_data/pg_tblspc={}', `$&\n${space}={}`)
        .replace('\n[target:path:default]', 'pg_tblspc={}\npg_tblspc/1={}\n$&');
    },
  ],
];

/** The file with its checksum: SHA-1 of its contents as JSON, by which damage is detected. */
function signed(text: string): string {
  const [body = ''] = text.split('\n[backrest]\nbackrest-checksum=');
  const sections = body.split(/^\[(.*)\]$/m).slice(1);
  const parts: string[] = [];
  for (let index = 0; index < sections.length; index += 2) {
    const values = (sections[index + 1] ?? '').split('\n').filter((line) => line !== '');
    const pairs = values.map((line) => line.replace(/^([^=]*)=/, '"$1":'));
    parts.push(`"${sections[index]}":{${pairs.join(',')}}`);
  }
  const sum = createHash('sha1')
    .update(`{${parts.join(',')}}`)
    .digest('hex');
  return `${body}\n[backrest]\nbackrest-checksum="${sum}"\n`;
}
