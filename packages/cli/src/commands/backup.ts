import type { Schemas } from '@howdah/client';
import type { Command } from 'commander';
import {
  countOf,
  given,
  noun,
  verb,
  type Changing,
  type Confirming,
  type Printing,
  type Waiting,
} from '../command.ts';
import { answered, connect } from '../connection.ts';
import { Failure } from '../exit.ts';
import { findPath, findService, pathOf } from '../find.ts';
import { follow } from '../follow.ts';
import { dateAndDistance, relative } from '../moment.ts';
import { addCertificates } from './backup-certificates.ts';
import { confirmService } from './service-shared.ts';
import { isForPrograms, say, showAs, showList, table, type View } from '../output.ts';

type Backups = Schemas['Backups'];
type Retention = Schemas['BackupRetention'];
type Verification = Schemas['Verification'];

const BACKUP_VIEW: View<Schemas['Backup']> = {
  noun: 'backup',
  columns: [
    ['LABEL', ({ label }) => label],
    ['TYPE', ({ type }) => type],
    ['FINISHED', ({ finished_at: at }) => relative(at)],
    ['SIZE', ({ size_bytes: bytes }) => `${Math.round(bytes / 1e6)} MB`],
    ['WHERE', ({ regions }) => regions.map(({ region_code: code }) => code).join(', ')],
  ],
};

export function addBackup(program: Command): void {
  const backup = noun(program, 'backup', 'Show, take and verify the backups of services.');

  verb(backup, 'list <service>', {
    does: 'List the snapshots of a service, and its backups in repositories.',
    example: 'howdah backup list orders',
    takes: ['output'],
  }).action(async (name: string, { output }: Printing) => {
    const connection = await connect();
    const found = await answered(
      connection.client.GET(
        '/projects/{project_id}/services/{service_id}/backups',
        await findPath(connection, name),
      ),
    );
    await showList(output, found, BACKUP_VIEW);
  });

  verb(backup, 'retention <service>', {
    does: 'Show how long the backups of a service are kept.',
    example: 'howdah backup retention orders',
    takes: ['output'],
  }).action(async (name: string, { output }: Printing) => {
    const connection = await connect();
    const retention = await answered(
      connection.client.GET(
        '/projects/{project_id}/services/{service_id}/backup-retention',
        await findPath(connection, name),
      ),
    );
    await showAs(output, retention, 'retention', () => sayRetention(retention));
  });

  verb(backup, 'set-retention <service> <days>', {
    does:
      'Set how long the repositories keep the backups of a service. ' +
      'Asks for the name of a PROD service.',
    example: 'howdah backup set-retention orders 30',
    takes: ['output', 'dryRun', 'yes', 'confirm'],
  }).action(async (name: string, days: string, options: Changing & Confirming) => {
    const body = { retention_days: days === 'default' ? null : countOf('days', days) };
    const connection = await connect(options);
    const found = await findService(connection, name);
    const { service_id: id } = found;
    const confirmed = await confirmService(connection, found, 'setBackupRetention', options);
    const retention = await answered(
      connection.client.PUT('/projects/{project_id}/services/{service_id}/backup-retention', {
        params: { ...pathOf(connection, id), query: given('confirm', confirmed) },
        body,
      }),
    );
    await showAs(options.output, retention, 'retention', () => sayRetention(retention));
  });

  addRegions(backup);
  addCertificates(backup);

  verb(backup, 'status <service>', {
    does:
      'Show the snapshots of a service, whether they were verified, ' +
      'and the times that can be restored.',
    example: 'howdah backup status orders',
    takes: ['output'],
  }).action(async (name: string, { output }: Printing) => {
    const connection = await connect();
    const backups = await answered(
      connection.client.GET(
        '/projects/{project_id}/services/{service_id}/backupStatus',
        await findPath(connection, name),
      ),
    );
    await showAs(output, backups, 'backups', () => sayBackups(backups));
    if (backups.problem !== null) throw new Failure(backups.problem);
  });

  verb(backup, 'run <service>', {
    does: 'Back a service up now: into all repositories, or on Kubernetes in its region.',
    example: 'howdah backup run orders --full',
    takes: ['output', 'dryRun', 'wait'],
  })
    .option('--full', 'all data, not only what has changed since the last backup')
    .action(async (name: string, options: Waiting & { full?: true }) => {
      const connection = await connect(options);
      const { params } = await findPath(connection, name);
      const { data, response } = await connection.client.POST(
        '/projects/{project_id}/services/{service_id}/backups/run',
        { params, body: { full: options.full === true } },
      );
      await follow(connection, response, options);
      await showAs(options.output, data, 'answer', () =>
        say(options.wait ? 'backed up' : data?.message),
      );
    });

  verb(backup, 'verify <service>', {
    does:
      'Verify the newest backup of a service by restoring it beside the service; ' +
      'prints what was checked.',
    example: 'howdah backup verify orders',
    takes: ['output', 'dryRun', 'wait'],
  })
    .option('--repository', 'the backup in each repository, without anything of this machine')
    .action(async (name: string, options: Waiting & { repository?: true }) => {
      const connection = await connect(options);
      const { params } = await findPath(connection, name);
      const ofRepository = options.repository === true;
      const { data, response } = await connection.client.POST(
        '/projects/{project_id}/services/{service_id}/backups/verify',
        ofRepository ? { params: { ...params, query: { repository: 'true' } } } : { params },
      );
      await follow(connection, response, options);
      if (isForPrograms(options.output) || !options.wait)
        return showAs(options.output, data, 'answer', () => say(data?.message));
      const backups = await answered(
        connection.client.GET('/projects/{project_id}/services/{service_id}/backupStatus', {
          params,
        }),
      );
      if (!ofRepository) say(`verified: ${verificationOf(backups.last_verification)}`);
      else for (const one of backups.off_machine) say(offMachineVerificationOf(one));
    });
}

function sayRetention({ local_days: localDays, repositories, ...retention }: Retention): void {
  say(`in its region: ${daysOf(localDays)}`);
  const whose = retention.own_retention_days === null ? '' : ', set for the service';
  for (const { repository, retention_days: days } of repositories)
    say(`${repository}: ${daysOf(days)}${whose}`);
  if (repositories.length === 0) say('in repositories: there is none');
}

const daysOf = (days: number): string => (days === 1 ? '1 day' : `${days} days`);

const GAP_CAUSES = {
  missing: 'a WAL segment is missing from the archive',
  storage: 'archived WAL gave way, since it counts towards storage_gb',
} as const;

function sayBackups({
  window: { earliest, latest, days, gaps = [], gave_way: gaveWay },
  archive_mb: archiveMb,
  snapshots,
  storage,
  off_machine: offMachine,
  unprotected,
}: Backups): void {
  say(
    `in its region: any moment from ${distanceOf(earliest)} to ${distanceOf(latest)}; ` +
      `kept for ${daysOf(days)}; archive ${archiveMb} MB`,
  );
  for (const { after, before, because } of gaps)
    say(`except between ${after} and ${before}: ${GAP_CAUSES[because ?? 'missing']}`);
  if (gaveWay !== undefined)
    say(
      `moments from before the growth stay until ${dateAndDistance(gaveWay.until)}: ` +
        'fork one of them until then if the growth was no intention',
    );
  if (unprotected !== undefined) say(unprotected);
  table(
    ['SNAPSHOT', 'TAKEN', 'KIND', 'SIZE', 'VERIFIED'],
    snapshots.map(({ id, taken, kind, storage_mb, verification }) => [
      id,
      relative(taken),
      kind,
      `${storage_mb} MB`,
      verificationOf(verification),
    ]),
  );
  for (const one of offMachine) {
    const { repository, earliest, latest, retention_days: keptDays, backups, problem } = one;
    const { gaps: missing = [], backlog_mb: backlogMb, backlog_since: since } = one;
    say(
      `${repository}: any moment from ${distanceOf(earliest)} to ${distanceOf(latest)}; ` +
        `kept for ${daysOf(keptDays)}; ${backups.length} backups; ${backlogMb} MB of WAL wait` +
        (since === null ? '' : ` since ${dateAndDistance(since)}`),
    );
    for (const { after, before } of missing)
      say(`${repository}: except between ${after} and ${before ?? 'its next backup'}`);
    say(offMachineVerificationOf(one));
    if (problem !== null) say(`${repository}: ${problem}`);
  }
  if (storage !== null)
    say(
      `data: ${storage.total_mb} MB, ${storage.owned_mb} its own and ` +
        `${storage.shared_mb} shared with clones`,
    );
}

function verificationOf(verification: Verification | undefined): string {
  if (verification === undefined) return 'not yet';
  const { succeeded, at, recovery_seconds: seconds } = verification;
  return succeeded
    ? `${relative(at)}, back in ${seconds?.toFixed(1) ?? '?'} s`
    : `FAILED ${relative(at)}`;
}

/** How long a restore from a repository takes, and what it would lose, as it was measured. */
function offMachineVerificationOf({
  repository,
  last_verification: last,
}: Backups['off_machine'][number]): string {
  if (last === undefined) return `${repository}: not verified yet`;
  if (!last.succeeded)
    return `${repository}: could NOT be restored ${relative(last.at)}: ${last.problem ?? ''}`;
  const perGb = last.recovery_seconds_per_gb?.toFixed(1) ?? '?';
  return (
    `${repository}: verified ${relative(last.at)}: back in ` +
    `${last.recovery_seconds?.toFixed(1) ?? '?'} s (${perGb} s per GB), ` +
    `${last.lost_seconds ?? '?'} s would have been lost`
  );
}

function distanceOf(moment: string | null): string {
  return moment === null ? 'none yet' : dateAndDistance(moment);
}

/** The calls of Tiger Cloud for further regions of backups: here, repositories of all services. */
function addRegions(backup: Command): void {
  const path = '/projects/{project_id}/services/{service_id}/backup-regions';

  verb(backup, 'regions <service>', {
    does: 'List the repositories that have the backups of a service.',
    example: 'howdah backup regions orders',
    takes: ['output'],
  }).action(async (name: string, { output }: Printing) => {
    const connection = await connect();
    const found = await answered(connection.client.GET(path, await findPath(connection, name)));
    await showAs(output, found, 'region', () =>
      table(
        ['REPOSITORY', 'ADDED'],
        found.map((one) => [one.region_code, relative(one.created)]),
      ),
    );
  });

  verb(backup, 'add-region <service> <repository>', {
    does: 'Check that a repository has the backups of a service, as each has those of all.',
    example: 'howdah backup add-region orders offsite',
    takes: ['output'],
  }).action(async (name: string, repository: string, { output }: Printing) => {
    const connection = await connect();
    const { params } = await findPath(connection, name);
    const found = await answered(
      connection.client.POST(path, { params, body: { region_code: repository } }),
    );
    await showAs(output, found, 'region', () =>
      say(`${found.region_code} has the backups of ${name}`),
    );
  });

  verb(backup, 'remove-region <service> <repository>', {
    does: 'Refused: a repository has the backups of all services; howdah repo remove is for all.',
    example: 'howdah backup remove-region orders offsite',
    takes: [],
  }).action(async (name: string, repository: string) => {
    const connection = await connect();
    const { params } = await findPath(connection, name);
    await connection.client.DELETE(`${path}/{region_code}`, {
      params: { path: { ...params.path, region_code: repository } },
    });
  });
}
