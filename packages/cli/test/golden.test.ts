/**
 * What every command says, in golden/: its help, and its output in every format against answers
 * that are known. `npx vitest run --project system packages/cli/test/golden.test.ts -u` writes them
 * again; the difference is read before it is committed.
 */
import type { Command } from 'commander';
import { chmod, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROUTES } from '../../server/test/document.ts';
import { RECOVERY_KIT } from './answers.ts';
import { howdah, serve, type Outcome } from './api.ts';
import { loadProgram, FORMATS } from './probe.ts';

type Row = {
  /** As it is typed after `howdah`. */
  line: readonly string[];
  /** The call of the API that the command is; none: it is made of another one's answer. */
  call?: string;
  /** Whether it changes something by a call that another command has. */
  changes?: boolean;
  input?: string;
};

const row = (call: string, line: string, ...more: string[]): Row => ({
  call,
  line: [...line.split(' '), ...more],
});

/** Each call of the API as a command. */
const CALLS: readonly Row[] = [
  row('getAuthInfo', 'auth info'),
  row('logout', 'auth logout'),
  row('beginSession', 'auth session'),
  row('openLink', 'auth open', '0IZJ5ZOSPcPc2mmGPZlj6X6kt4u9-YsMY3UxK9D82GM'),
  row('startDeviceLogin', 'auth login'),
  row('collectDeviceLogin', 'auth login'),
  row('findDeviceLogin', 'auth device BCDF-GHJK'),
  row(
    'approveDeviceLogin',
    'auth approve BCDF-GHJK --role developer --expires 2026-02-28T12:00:00Z',
  ),
  row('denyDeviceLogin', 'auth deny BCDF-GHJK'),
  row('createLink', 'console'),
  row('identifyAnalytics', 'analytics identify'),
  row('trackAnalytics', 'analytics track'),
  row('sendFeedback', 'feedback', 'the disk is full again'),
  row('listProjects', 'project list --all'),
  row('createProject', 'project create --name team --services 10 --memory-gbs none'),
  row('getProject', 'project get'),
  row('listUsage', 'usage --why'),
  row('renameProject', 'project rename default shop'),
  row(
    'setProjectLimits',
    'project limits team --services 20 --cpu-millis none --backup-retention-days 30',
  ),
  row('listRegions', 'region list'),
  row('getDoctor', 'region doctor'),
  row('listKubernetesRegions', 'region clusters'),
  row('addRegion', 'region add kube --host 192.0.2.2 --ports 30000-30999 --image 17=pg:17'),
  {
    ...row(
      'setObjectStore',
      'region object-store kube --s3 https://s3.example.com --bucket backups ' +
        '--region eu-west-1 --key-id AKIA --key-file -',
    ),
    input: 'secret\n',
  },
  row('examineRegion', 'region doctor kube'),
  row('setImages', 'region set-images kube --image 17=pg:17 --extensions 17=timescaledb,vector'),
  row(
    'setPlacement',
    'region set-placement kube --node-selector pool=db --toleration dedicated=db:NoSchedule spot ' +
      '--spread zone node=required --priority-class db --service orders',
  ),
  row('removeRegion', 'region remove kube'),
  row('listKeys', 'key list'),
  row(
    'createKey',
    'key create --name ci --expires 2027-01-31T12:00:00Z --fork-only --ttl 2h --max-ttl 1d ' +
      '--auto-suspend 5m --max-services 20',
  ),
  row('getKey', 'key get ci'),
  row('revokeKey', 'key revoke ci'),
  row('listServices', 'service list --status READY'),
  row(
    'createService',
    'service create --name orders --addons time-series,ai --cpu-millis 1000 --replicas 1 ' +
      '--sync 1 --pooler --vpc office',
  ),
  row('getService', 'service get linltu4hxx'),
  row('deleteService', 'service delete orders --confirm orders'),
  row('listDeletedServices', 'service list-deleted'),
  row('listMembers', 'service members orders'),
  row('forkService', 'service fork orders --at 2026-01-31T12:00:00Z --name before --ttl 2h'),
  row('restoreService', 'service restore orders'),
  row('recoverService', 'service recover orders --confirm orders'),
  row('resetService', 'service reset orders --to beginning --confirm orders'),
  row('upgradeService', 'service upgrade orders --to 18 --confirm orders'),
  row('moveService', 'service move orders --region kube --confirm orders'),
  row('startService', 'service start orders'),
  row('stopService', 'service stop orders --confirm orders'),
  row('resizeService', 'service resize orders --cpu-millis 2000 --cpu-bound --confirm orders'),
  row('enablePooler', 'service enable-pooler orders'),
  row('disablePooler', 'service disable-pooler orders --confirm orders'),
  row('attachToVPC', 'service attach-vpc orders office --confirm orders'),
  row('detachFromVPC', 'service detach-vpc orders --confirm orders'),
  row('attachToAllowList', 'service attach-allow-list orders office --confirm orders'),
  row('detachFromAllowList', 'service detach-allow-list orders --confirm orders'),
  row('setHA', 'service ha orders --replicas 2 --sync 1 --confirm orders'),
  row('restartService', 'service restart orders --confirm orders'),
  row('switchover', 'service switchover orders --confirm orders'),
  row('drill', 'service drill orders --kind failover --confirm orders'),
  row('renameService', 'service rename orders shop'),
  row('setExpiry', 'service set-expiry orders 2027-01-31T12:00:00Z'),
  row('setAutoSuspend', 'service set-auto-suspend orders 5m --confirm orders'),
  row('getAwake', 'service awake orders'),
  row('setEnvironment', 'service set-environment orders PROD --confirm orders'),
  {
    ...row('updatePassword', 'service set-password orders --confirm orders'),
    input: 'correct horse\n',
  },
  row('getServiceLogs', 'service logs orders --search ready --severity LOG'),
  row('listOperations', 'operation list --service orders --kind resize --status succeeded'),
  row('getOperation', 'operation get 01jd3k7w0c'),
  row('cancelOperation', 'operation cancel 01jd3k7w0c'),
  row('listBackups', 'backup list orders'),
  row('listBackupRegions', 'backup regions orders'),
  row('addBackupRegion', 'backup add-region orders offsite'),
  row('removeBackupRegion', 'backup remove-region orders offsite'),
  row('getBackupStatus', 'backup status orders'),
  row('getBackupRetention', 'backup retention orders'),
  row('setBackupRetention', 'backup set-retention orders 30 --confirm orders'),
  row('listCertificates', 'backup certificates orders'),
  row('getCertificate', 'backup certificate orders'),
  row('listCertificateKeys', 'backup certificate-key'),
  row('verifyBackup', 'backup verify orders'),
  row('runBackup', 'backup run orders --full'),
  row('listExtensions', 'extension installed'),
  row('listServiceExtensions', 'extension list orders'),
  row('enableExtension', 'extension enable orders timescaledb --confirm orders'),
  row('disableExtension', 'extension disable orders timescaledb --confirm orders'),
  row(
    'queryService',
    'query orders',
    'select id, note from orders where id > $1',
    '--parameter',
    '41',
  ),
  row('listSeries', 'metrics list orders'),
  row('describeSeries', 'metrics describe orders'),
  row(
    'querySeries',
    'metrics query orders connections --from 2026-01-31T12:00:00Z --to 2026-01-31T12:02:00Z ' +
      '--bucket-seconds 60 --fn max --filter state=idle',
  ),
  row('listReplicaSets', 'replica-set list orders'),
  row('getReplicaSet', 'replica-set get orders readers'),
  row('createReplicaSet', 'replica-set create orders --name readers --nodes 2'),
  row('resizeReplicaSet', 'replica-set resize orders readers --cpu-millis 1000'),
  row('enablePoolerOfReplicaSet', 'replica-set enable-pooler orders readers'),
  row('disablePoolerOfReplicaSet', 'replica-set disable-pooler orders readers'),
  row('setEnvironmentOfReplicaSet', 'replica-set set-environment orders readers PROD'),
  row('setPurposeOfReplicaSet', 'replica-set set-purpose orders readers lookups'),
  row('deleteReplicaSet', 'replica-set delete orders readers'),
  row('getSimulation', 'simulation get'),
  {
    ...row('setSimulationScript', 'simulation script -'),
    input: '{"delays_ms": {"create": 60000}}',
  },
  row('advanceSimulationClock', 'simulation advance 20m'),
  row('attachToExporter', 'service attach-exporter orders grafana'),
  row('detachFromExporter', 'service detach-exporter orders'),
  row('listExporters', 'exporter list'),
  row('getExporter', 'exporter get grafana'),
  row(
    'createExporter',
    'exporter create --name grafana --type PROMETHEUS_REMOTE_WRITE --url https://example.com/write',
  ),
  row('updateExporter', 'exporter change grafana --name prometheus'),
  row('deleteExporter', 'exporter delete grafana'),
  row('listAllowLists', 'allow-list list'),
  row('getAllowList', 'allow-list get office'),
  row('createAllowList', 'allow-list create --description office --cidr 203.0.113.0/24'),
  row('updateAllowList', 'allow-list change office --cidr 203.0.113.0/24,2001:db8::/32'),
  row('deleteAllowList', 'allow-list delete office'),
  row('listVpcs', 'vpc list'),
  row('getVpc', 'vpc get 1001'),
  row('createVpc', 'vpc create --name office --cidr 10.1.0.0/16'),
  row('renameVpc', 'vpc rename office warehouse'),
  row('deleteVpc', 'vpc delete office'),
  row('listPeerings', 'peering list office'),
  row('getPeering', 'peering get office warehouse'),
  row('createPeering', 'peering create office --peer warehouse'),
  row('deletePeering', 'peering delete office warehouse'),
  row('streamEvents', 'events'),
  row('takeLeases', 'lease take orders --ttl 10m'),
  row('listLeases', 'lease list'),
  row('getLease', 'lease get k3v9x2m1qa'),
  row('extendLeases', 'lease extend 10m k3v9x2m1qa'),
  row('returnLeases', 'lease return k3v9x2m1qa zzzzzzzzzz'),
  row('returnLease', 'lease return k3v9x2m1qa'),
  row('listWebhooks', 'webhook list'),
  row(
    'createWebhook',
    'webhook create https://example.com/hook --types service.status,operation.finished',
  ),
  row('testWebhook', 'webhook test https://example.com/hook'),
  row('listDeliveries', 'webhook deliveries 7 --status failed'),
  row('redeliver', 'webhook redeliver 7 17'),
  row('deleteWebhook', 'webhook delete 7'),
  row('listIncidents', 'alert list --status open'),
  row('listAlertRules', 'alert rules'),
  row('setAlertRule', 'alert set lag --threshold 30 --for-minutes default --on'),
  row('listAlertDestinations', 'alert destination list'),
  row('getAlertDestination', 'alert destination get oncall'),
  {
    ...row(
      'createAlertDestination',
      'alert destination add --name oncall --type smtp --host mail.example.com --username howdah ' +
        '--from howdah@example.com --to dba@example.com --quiet 22:00-07:00 ' +
        '--time-zone Europe/Berlin',
    ),
    input: 'secret\n',
  },
  row('updateAlertDestination', 'alert destination change oncall --quiet none'),
  row('testAlertDestination', 'alert destination test oncall'),
  row('deleteAlertDestination', 'alert destination remove oncall'),
  row('listRepositories', 'repo list'),
  row('createRepository', 'repo add disk2 --path /mnt/disk2/howdah'),
  row('getRepository', 'repo show offsite'),
  row('checkRepository', 'repo check offsite'),
  row('getRecoveryKit', 'repo kit offsite'),
  row('deleteRepository', 'repo remove offsite'),
  {
    ...row(
      'createServiceFromKit',
      'service create-from-kit - orders --name copy --at 2026-01-31T12:00:00Z',
    ),
    input: JSON.stringify(RECOVERY_KIT),
  },
  row('adoptService', 'adopt /srv/howdah/data/services/mq45ho2ud1 --name orders'),
  row('listAudit', 'audit-log list --call deleteService --outcome refused'),
  row('exportAudit', 'audit-log export --since 2026-01-01T00:00:00Z'),
];

/** The other commands that use the API. */
const MORE: readonly Row[] = [
  { line: ['service', 'operations', 'orders'] },
  { line: ['service', 'extend', "it's $HOME", '2h'], changes: true },
  { line: ['service', 'purge', 'orders', '--confirm', 'orders'], changes: true },
  { line: ['logs', 'orders'] },
  { line: ['url', 'orders'] },
  { line: ['psql', 'orders', '-c', 'select 1'] },
  { line: ['usage', '--by', 'parent'] },
  { line: ['env'] },
  { line: ['completion', 'bash'] },
];

/** Commands that work on this machine, or with programs of PostgreSQL: their own tests run them. */
const MACHINE = [
  'checkout',
  'service diff',
  'up',
  'upgrade',
  'down',
  'status',
  'doctor',
  'audit',
  'extension install',
  'store create',
  'store show',
  'store resize',
  'backup verify-certificate',
  'backup-control',
  'restore-control',
  'metadata-database',
  'recover',
  'gateway',
  'mcp',
  'import start',
  'import resume',
  'import status',
  'import cutover',
  'import cancel',
  'export',
];

/** All commands, as they are typed, with what they take. */
const LEAVES = leavesOf(await loadProgram([]));

function leavesOf(
  command: Command,
  path: readonly string[] = [],
): { name: string; command: Command }[] {
  const children = command
    .createHelp()
    .visibleCommands(command)
    .filter((child) => child.name() !== 'help');
  if (children.length === 0) return [{ name: path.join(' '), command }];
  return children.flatMap((child) => leavesOf(child, [...path, child.name()]));
}

function leafOf({ line }: Row) {
  const found = LEAVES.find(({ name }) => `${line.join(' ')} `.startsWith(`${name} `));
  if (found === undefined) throw new Error(`no command ${line.join(' ')}`);
  return found;
}

const takes = (command: Command, flag: string): boolean =>
  command.options.some(({ long }) => long === flag);

test('every call of the API has a command, and every command is tested', () => {
  const calls = CALLS.flatMap(({ call }) => call ?? []);
  expect(calls.toSorted()).toEqual(ROUTES.map(({ operationId }) => operationId).toSorted());
  const tested = [...CALLS, ...MORE].map((one) => leafOf(one).name);
  expect([...new Set(tested), ...MACHINE].toSorted()).toEqual(
    LEAVES.map(({ name }) => name).toSorted(),
  );
});

test('every command has an example, of itself', () => {
  for (const { name, command } of LEAVES) {
    const help: string[] = [];
    command.configureOutput({ writeOut: (text) => help.push(text) }).outputHelp();
    const [, example = ''] = /\nExample:\n {2}\$ (.*)\n$/.exec(help.join('')) ?? [];
    expect(example, name).toContain(`howdah ${name}`);
  }
});

test('every command that prints data has every format, every change can be asked about', () => {
  const silent = [
    'auth open',
    'auth session',
    'auth logout',
    'audit-log export',
    'psql',
    'env',
    'completion',
    // Leases end by themselves: nobody asks about them before.
    'lease take',
    'lease extend',
    'lease return',
  ];
  const ofApi = [...CALLS, ...MORE].filter((one) => !silent.includes(leafOf(one).name));
  for (const one of ofApi) {
    const { name, command } = leafOf(one);
    const changes =
      one.changes ??
      ROUTES.some(({ operationId, changes: yes }) => yes && operationId === one.call);
    const isDeletion = / (delete|remove|remove-region|purge|revoke|set-password)$/.test(name);
    expect([name, takes(command, '--output'), takes(command, '--dry-run')]).toEqual([
      name,
      !isDeletion,
      changes,
    ]);
  }
});

let home: string;
beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'hd-'));
  const credentials = {
    api_url: 'http://127.0.0.1:8080/public/api/v1',
    project_id: 'n765kku04j',
    public_key: 'HDpublic',
    secret_key: 'secret',
  };
  await writeFile(join(home, 'credentials.json'), JSON.stringify(credentials));
  // Says how it was called.
  await writeFile(join(home, 'psql'), '#!/bin/sh\nprintf "psql <%s>\\n" "$@"\n');
  await chmod(join(home, 'psql'), 0o755);
});
afterAll(async () => rm(home, { recursive: true, force: true }));

const GOLDEN = fileURLToPath(new URL('golden/', import.meta.url));
const fileOf = (name: string): string => `${name.replaceAll(' ', '-')}.txt`;

/** Each command is half a dozen processes; one of so many runs by default. */
const SAMPLE_OF = 15;

describe.concurrent('golden', () => {
  const rows = [...CALLS, ...MORE];
  const all = LEAVES.map((leaf) => ({
    ...leaf,
    // One command may be two calls.
    ones: rows.filter((one) => leafOf(one).name === leaf.name),
  })).filter(({ ones }) => ones.length > 0);
  for (const [position, { ones, name, command }] of all.entries())
    test(
      `howdah ${name}`,
      { tags: position % SAMPLE_OF === 0 ? [] : ['slow'] },
      async ({ expect: expected }) => {
        const api = await serve();
        const env = { ...api.env, HOWDAH_HOME: home, PATH: `${home}:${process.env['PATH'] ?? ''}` };
        const said: string[] = [];
        const run = async (line: readonly string[], input = ''): Promise<string> => {
          const outcome = await howdah(line, env, input);
          said.push(
            transcript(line, outcome).replaceAll(
              api.apiUrl.replace(/\/public.*/, ''),
              'http://127.0.0.1:8080',
            ),
          );
          return outcome.stdout;
        };
        try {
          await run([...name.split(' '), '--help']);
          for (const one of ones) {
            await run(one.line, one.input);
            if (one.call !== undefined) expected(api.called).toContain(one.call);
            const inFormat: Record<string, string> = {};
            if (takes(command, '--output'))
              for (const format of FORMATS.slice(1))
                inFormat[format] = await run([...one.line, '-o', format], one.input);
            // Programs find one document there, or one a line, and nothing else.
            const { json } = inFormat;
            if (json !== undefined)
              for (const text of one.call === 'streamEvents' ? json.trim().split('\n') : [json])
                JSON.parse(text);
            const changed = [...api.changed];
            if (takes(command, '--dry-run')) await run([...one.line, '--dry-run'], one.input);
            expected(api.changed, 'a dry run').toEqual(changed);
          }
        } finally {
          api.close();
        }
        expected(api.problems).toEqual([]);
        await expected(said.join('\n')).toMatchFileSnapshot(join(GOLDEN, fileOf(name)));
      },
    );

  test.for(MACHINE)('howdah %s --help', async (name, { expect: expected }) => {
    const line = [...name.split(' '), '--help'];
    const help = transcript(line, await howdah(line, { HOWDAH_HOME: home }));
    await expected(help).toMatchFileSnapshot(join(GOLDEN, fileOf(name)));
  });

  test('howdah --help', async ({ expect: expected }) => {
    await expected(transcript(['--help'], await howdah(['--help'], {}))).toMatchFileSnapshot(
      join(GOLDEN, 'howdah.txt'),
    );
  });
});

test('no golden file is left of a command that is no more', async () => {
  const names = [...LEAVES.map(({ name }) => fileOf(name)), 'howdah.txt'];
  expect((await readdir(GOLDEN)).toSorted()).toEqual(names.toSorted());
});

/**
 * As a terminal would show it, with what is no data marked, and the exit code where it is not 0.
 */
function transcript(line: readonly string[], { code, stdout, stderr }: Outcome): string {
  const words = line.map((word) => (/[^\w./:=,@-]/.test(word) ? `'${word}'` : word));
  const marked =
    stderr === ''
      ? ''
      : stderr
          .trimEnd()
          .split('\n')
          .map((text) => `! ${text}\n`)
          .join('');
  return `$ howdah ${words.join(' ')}\n${stdout}${marked}${code === 0 ? '' : `(exit ${code})\n`}`;
}
