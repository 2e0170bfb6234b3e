/** Backups of a service, forks from them, and the restore of a deleted service. */
import {
  BackupRegionBody,
  BackupRegionSchema,
  BackupRetentionSchema,
  BackupSchema,
  BackupsSchema,
  CertificateKeySchema,
  CertificateSummarySchema,
  ForkBody,
  MessageBody,
  RecoverBody,
  ResetBody,
  Ref,
  RunBackupBody,
  ServiceSchema,
  SetBackupRetentionBody,
  SignedCertificateSchema,
  StringEnum,
  UpgradeBody,
} from '@howdah/contract';
import { Type } from 'typebox';
import { runBackup, verifyBackup } from '../../services/change-service.ts';
import { restoreService } from '../../services/delete-service.ts';
import { resetService } from '../../services/reset-service.ts';
import { recoverService } from '../../services/recover-service.ts';
import { upgradeService } from '../../services/upgrade-service.ts';
import { forkService } from '../../services/fork-service.ts';
import {
  backupRegionOrRefuse,
  listBackupRegions,
  refuseToRemove,
  readBackupRetention,
  setBackupRetention,
} from '../../services/backups.ts';
import { listBackups, readBackups } from '../../services/service-reads.ts';
import { listCertificates, readCertificate } from '../../services/certificates.ts';
import { listCertificateKeys } from '../../store/certificates.ts';
import type { ApiContext, App } from '../context.ts';
import { answer, callerOf } from '../change-requests.ts';
import { sendText } from '../reply.ts';
import { ForceQuery, ofService } from './schemas.ts';

const VerifyQuery = Type.Object({
  repository: Type.Optional(
    StringEnum(['true', 'false'], {
      description: 'true: the backup in each repository, without anything of this machine',
    }),
  ),
});

/** Tiger Cloud's regions for backups: here, the repositories. No call changes anything. */
function backupRegionRoutes(api: App, context: ApiContext): void {
  const path = '/projects/:project_id/services/:service_id/backup-regions';
  api.get(
    path,
    {
      schema: {
        operationId: 'listBackupRegions',
        summary: 'List the repositories that have the backups of a service',
        tags: ['backups'],
        params: ofService,
        response: { 200: Type.Array(Ref(BackupRegionSchema)) },
      },
    },
    async (request) => listBackupRegions(context, request.service),
  );

  api.post(
    path,
    {
      schema: {
        operationId: 'addBackupRegion',
        summary: 'Have the backups of a service in a repository',
        description:
          'A repository has the backups of all services, so this changes nothing. It is for ' +
          'clients that expect a call for each service.',
        tags: ['backups'],
        params: ofService,
        body: Ref(BackupRegionBody),
        response: { 200: Ref(BackupRegionSchema) },
      },
    },
    async (request) => backupRegionOrRefuse(context, request.service, request.body.region_code),
  );

  api.delete(
    `${path}/:region_code`,
    {
      schema: {
        operationId: 'removeBackupRegion',
        summary: 'Refused: a repository has the backups of all services',
        tags: ['backups'],
        params: Type.Object({ ...ofService.properties, region_code: Type.String() }),
        response: { 204: Type.Null({ description: 'never' }) },
      },
    },
    async (request) => refuseToRemove(context, request.service, request.params.region_code),
  );
}

function certificateRoutes(api: App, context: ApiContext): void {
  const path = '/projects/:project_id/services/:service_id/backups/certificates';
  api.get(
    path,
    {
      schema: {
        operationId: 'listCertificates',
        summary: 'List the restore certificates of a service, newest first',
        description:
          'Each verification of a backup that succeeds issues one. They are kept for ' +
          'HOWDAH_HISTORY_DAYS, at most 400 of a service, and go with it.',
        tags: ['backups'],
        params: ofService,
        response: { 200: Type.Array(Ref(CertificateSummarySchema)) },
      },
    },
    async (request) => listCertificates(context, request.service),
  );

  api.get(
    `${path}/:certificate_id`,
    {
      schema: {
        operationId: 'getCertificate',
        summary: 'Get a restore certificate as it was signed',
        tags: ['backups'],
        params: Type.Object({ ...ofService.properties, certificate_id: Type.String() }),
        response: { 200: Ref(SignedCertificateSchema) },
      },
    },
    async (request, reply) => {
      const { certificate_id: id } = request.params;
      return sendText(reply, 200, await readCertificate(context, request.service, id));
    },
  );

  api.get(
    '/certificate-keys',
    {
      schema: {
        operationId: 'listCertificateKeys',
        summary: 'List the public keys of restore certificates, newest first',
        description:
          'The newest signs. Older ones stay for the certificates that they have signed. There ' +
          'is none before the first certificate.',
        tags: ['backups'],
        response: { 200: Type.Array(Ref(CertificateKeySchema)) },
      },
    },
    async () => listCertificateKeys(context.store.db),
  );
}

export function backupRoutes(api: App, context: ApiContext): void {
  backupRegionRoutes(api, context);
  certificateRoutes(api, context);
  api.post(
    '/projects/:project_id/services/:service_id/forkService',
    {
      schema: {
        operationId: 'forkService',
        summary: 'Fork a service',
        description:
          'The answer contains the final endpoint and the initial password of the fork, ' +
          'which no other answer contains.',
        tags: ['backups'],
        params: ofService,
        querystring: ForceQuery,
        body: Ref(ForkBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await forkService(context, callerOf(request), request.service, request.body)),
  );

  api.get(
    '/projects/:project_id/services/:service_id/backups',
    {
      schema: {
        operationId: 'listBackups',
        summary: 'List the snapshots and the backups in repositories, newest first',
        tags: ['backups'],
        params: ofService,
        response: { 200: Type.Array(Ref(BackupSchema)) },
      },
    },
    async (request) => listBackups(context, request.service),
  );

  api.get(
    '/projects/:project_id/services/:service_id/backupStatus',
    {
      schema: {
        operationId: 'getBackupStatus',
        summary: 'Describe snapshots, archive and the window that can be restored',
        tags: ['backups'],
        params: ofService,
        response: { 200: Ref(BackupsSchema) },
      },
    },
    async (request) => readBackups(context, request.service),
  );

  api.get(
    '/projects/:project_id/services/:service_id/backup-retention',
    {
      schema: {
        operationId: 'getBackupRetention',
        summary: 'Get how long backups are kept',
        tags: ['backups'],
        params: ofService,
        response: { 200: Ref(BackupRetentionSchema) },
      },
    },
    async (request) => readBackupRetention(context, request.service),
  );

  api.put(
    '/projects/:project_id/services/:service_id/backup-retention',
    {
      schema: {
        operationId: 'setBackupRetention',
        summary: 'Set how long repositories keep the backups of a service',
        description:
          'Instead of the time that each repository has for all services; null: that again. ' +
          'Backups that are older are removed within a day, but for those that the first moment ' +
          'within the time is restored from. A deleted service keeps the time that it had. How ' +
          'long snapshots and WAL stay on the machine is set by the operator (HOWDAH_BACKUP_DAYS).',
        tags: ['backups'],
        params: ofService,
        body: Ref(SetBackupRetentionBody),
        response: { 200: Ref(BackupRetentionSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await setBackupRetention(context, callerOf(request), request.service, request.body),
      ),
  );

  api.post(
    '/projects/:project_id/services/:service_id/backups/verify',
    {
      schema: {
        operationId: 'verifyBackup',
        summary: 'Verify the newest backup by restoring it',
        querystring: VerifyQuery,
        description:
          'It runs beside the service and its other operations. ' +
          'While it runs, another call names the same operation.',
        tags: ['backups'],
        params: ofService,
        response: { 202: Ref(MessageBody) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await verifyBackup(
          context,
          callerOf(request),
          request.service.key,
          request.query.repository === 'true',
        ),
      ),
  );

  api.post(
    '/projects/:project_id/services/:service_id/backups/run',
    {
      schema: {
        operationId: 'runBackup',
        summary: 'Back the newest snapshot up into all repositories',
        description:
          'On Kubernetes it is a snapshot and a base backup in the region. ' +
          'Howdah does it each day by itself. It runs beside the service and its other ' +
          'operations. While it runs, another call names the same operation. A cancelled one ' +
          'leaves the repositories as they were; the next one by schedule is a day later.',
        tags: ['backups'],
        params: ofService,
        body: Ref(RunBackupBody),
        response: { 202: Ref(MessageBody) },
      },
    },
    async (request, reply) =>
      answer(reply, await runBackup(context, callerOf(request), request.service.key, request.body)),
  );

  api.post(
    '/projects/:project_id/services/:service_id/restore',
    {
      config: { deletedToo: true },
      schema: {
        operationId: 'restoreService',
        summary: 'Restore a deleted service',
        description:
          'With its id, endpoint, data and password, for a day after it was deleted, or as long ' +
          'as the installation keeps them. After that, it is restored from a repository that ' +
          'has its backups: without its read replica sets, and at another port if its own is ' +
          'taken.',
        tags: ['backups'],
        params: ofService,
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await restoreService(context, callerOf(request), request.service)),
  );

  api.post(
    '/projects/:project_id/services/:service_id/recover',
    {
      schema: {
        operationId: 'recoverService',
        summary: 'Restore the lost or damaged data of a service from its backups',
        description:
          'In its place: id, endpoint, password and settings stay. The newest state of its ' +
          'backups comes back, of this machine or of a repository. The data that it has now is ' +
          'kept for as long as a deleted service. On Kubernetes it is a service whose Cluster ' +
          'somebody has deleted, and comes back from the object store of its region. A dry run ' +
          'says which moment comes back.',
        tags: ['backups'],
        params: ofService,
        body: Ref(RecoverBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await recoverService(context, callerOf(request), request.service)),
  );

  api.post(
    '/projects/:project_id/services/:service_id/reset',
    {
      schema: {
        operationId: 'resetService',
        summary: 'Reset a fork to the data of its parent',
        description:
          'In its place: id, endpoint, password of tsdbadmin, size and end stay. The data of its ' +
          'parent is cloned beside the fork, of now, of the beginning of the fork or of a point ' +
          'in time, and then takes the place of its own, which is removed with its snapshots. ' +
          'Sessions end. If the data cannot be made, the fork stays as it was, and the operation ' +
          'says why. A paused fork is started.',
        tags: ['backups'],
        params: ofService,
        body: Ref(ResetBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await resetService(context, callerOf(request), request.service, request.body)),
  );

  api.post(
    '/projects/:project_id/services/:service_id/upgrade',
    {
      schema: {
        operationId: 'upgradeService',
        summary: 'Upgrade a service to a newer major version of PostgreSQL',
        description:
          'In its place: id, endpoint, passwords and settings stay. Nobody can connect while the ' +
          'data is copied into the new version by a dump. With `try`, a copy of the service is ' +
          'upgraded and removed: the operation says how long it takes, or what fails. The former ' +
          'data is kept for as long as a deleted service; `undo` brings it back, without what ' +
          'was written since then.',
        tags: ['backups'],
        params: ofService,
        body: Ref(UpgradeBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await upgradeService(context, callerOf(request), request.service, request.body),
      ),
  );
}
