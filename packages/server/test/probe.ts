/**
 * The server's source for system tests. Only files named probe.ts import from `src`, so a move of
 * a source file changes one line of the tests. Almost every test file loads all of this file.
 * Modules that few tests use and that import many others are in test-kubernetes/probe.ts and
 * test-repositories/probe.ts.
 */

// domain
export type { OperationRow } from '../src/domain/operation.ts';
export { adminRights } from '../src/domain/postgres/admin-role.ts';
export type { ServiceRow } from '../src/domain/service/row.ts';
export { networkColumnsOf, serviceSpec } from '../src/domain/service/spec.ts';

// engine
export type { BeginStep, Engine, LogQuery, Verdict } from '../src/engine/engine.ts';
export {
  type ClientCertificate,
  COPY_APPLICATION,
  MoveRefused,
  type MoveTargetRegion,
} from '../src/engine/moves.ts';
export { folderOf, type ObjectStore } from '../src/engine/object-store.ts';
export { createRegions } from '../src/engine/regions.ts';
export type { ServiceSpec } from '../src/engine/spec.ts';

// engine/local/admin
export { backupControl, readControl } from '../src/engine/local/admin/control-backup.ts';
export { stopDatabases } from '../src/engine/local/admin/stop-databases.ts';

// engine/local/copy
export { findBaseBackup } from '../src/engine/local/copy/base-backup.ts';

// engine/local/host
export { cloneTree, probeCloneMethod, removeTree } from '../src/engine/local/host/clone.ts';
export { findDaemon, findProgram } from '../src/engine/local/host/daemon.ts';
export {
  allowEgress,
  createEgress,
  isEgressRefused,
  refuseEgress,
  tableOf,
} from '../src/engine/local/host/egress.ts';
export { imagePaths, unfinishedMove } from '../src/engine/local/host/image.ts';
export {
  createLayout,
  installationPlaces,
  type InstancePaths,
  instancePaths,
  type Layout,
  memberKey,
} from '../src/engine/local/host/layout.ts';
export { rootsOf } from '../src/engine/local/host/groups.ts';
export { groupIds } from '../src/engine/local/host/limits.ts';
export { isMounted, mountImage, unmount } from '../src/engine/local/host/loop.ts';
export type { Machine } from '../src/engine/local/host/machine-record.ts';
export { findSite, prepareMachine } from '../src/engine/local/host/machine.ts';
export { currentBoot, readMarker, writeMarker } from '../src/engine/local/host/marker.ts';
export { writeText } from '../src/lib/untrusted-files.ts';
export { ownerOf, type UidRange } from '../src/engine/local/host/users.ts';

// engine/local/network
export { findNetworks, probeNetworks } from '../src/engine/local/network/networks.ts';

// engine/local/postgres
export { configFiles } from '../src/engine/local/postgres/files.ts';
export { CONTROL_ROLE } from '../src/engine/postgres/roles.ts';
export { type Installation } from '../src/engine/local/postgres/installations.ts';
export { copyNpmFiles } from '../src/engine/local/postgres/installations.ts';
export { createServerMonitor } from '../src/engine/local/postgres/server-monitor.ts';
export {
  MEMBER,
  memberName,
  NODE,
  nodeName,
  waitedForOf,
} from '../src/engine/postgres/replication/replication-conf.ts';
export { allowRoleFunctions } from '../src/engine/postgres/contents/contents.ts';
export { findServer, portIsFree, runningServers } from '../src/engine/local/postgres/server.ts';
export { portOfServer } from '../src/engine/postgres/postmaster-file.ts';
export {
  ensureStoreRunning,
  storeConnection,
} from '../src/engine/local/postgres/store-instance.ts';
export { withSuperuserSession } from '../src/engine/postgres/sessions/superuser.ts';
export { createTemplates, initdbArguments } from '../src/engine/local/postgres/templates.ts';
export { isWalFile, nextWalFile } from '../src/engine/postgres/data/wal-files.ts';

// engine/local/proxy
export { gatewayCapability } from '../src/engine/local/proxy/gateway.ts';
export { createPoolerRole } from '../src/engine/local/proxy/pooler.ts';

// engine/local/topology
export { confOf } from '../src/engine/local/topology/standbys.ts';

// engine/pooler
export { POOLER_ROLE } from '../src/engine/pooler/lookup.ts';

// engine/statements
export { READER_ROLE } from '../src/engine/statements/session.ts';
export { REVOKE_WRITERS, WRITERS } from '../src/engine/statements/session.ts';

// events
export { createEventHub } from '../src/events/hub.ts';
export { blockListOf } from '../src/events/outgoing-request.ts';
export { deliver } from '../src/events/receiver.ts';

// lib
export { newId } from '../src/lib/ids.ts';
export { QUIET } from '../src/lib/log.ts';
export { createRounds } from '../src/lib/rounds.ts';
export {
  allPids,
  argumentsOf,
  childrenOf,
  exists,
  findProcess,
  readNow,
  type Process,
  readOrNull,
  signal,
  uidOf,
  waitUntilGone,
} from '../src/lib/processes.ts';
export { run } from '../src/lib/run.ts';
export { workingDirectoryOf } from '../src/lib/working-directories.ts';
export { scramVerifier } from '../src/lib/scram.ts';
export { makeSigningKey } from '../src/lib/signing.ts';
export { sha256 } from '../src/lib/secret.ts';
export {
  type CertificateAuthority,
  issueClientCertificate,
  issueServerCertificate,
  LEAF_DAYS,
  makeAuthority,
  openCertificateAuthority,
  type ServerCertificate,
} from '../src/lib/tls.ts';
export { TUNING, type RoundName, type Tuning } from '../src/lib/tuning.ts';

// main
export { readCredentials, recoveryPath } from '../src/installation.ts';
export { checkIntegrity } from '../src/integrity.ts';
export { OPENAPI_FILE } from '../src/paths.ts';
export { DEFAULT_UID_RANGE, LOCAL_REGION } from '../src/settings.ts';

// reconcile
export { certify } from '../src/reconcile/certificates.ts';
export { PRUNINGS } from '../src/reconcile/history.ts';

// repository
export { findPgBackRest, whyNotServed } from '../src/repository/pgbackrest.ts';
export {
  CONTROL_OBJECT,
  type PgBackRest,
  type Repository,
  RepositoryProblem,
  type Storage,
} from '../src/repository/repository.ts';

// services
export { createDurationCache } from '../src/services/operations.ts';
export { createLogReadLimit, createUsageReadLimit } from '../src/services/read-limit.ts';

// store
export { refreshAllowLists } from '../src/store/allow-lists.ts';
export { insertToken, MAX_TOKENS } from '../src/store/console.ts';
export { openStore, type Store } from '../src/store/database.ts';
export { pruneAnswers } from '../src/store/kept-answers.ts';
export { createKeptLogs, KEPT_BYTES } from '../src/store/kept-logs.ts';
export { insertKey, type NewKey } from '../src/store/keys.ts';
export { claimDueDatabase } from '../src/store/leased-databases.ts';
export { makeAllDue } from '../src/store/claims.ts';
export type { OnNotification } from '../src/store/events.ts';
export { beginOperation, progressOperation } from '../src/store/operations.ts';
export { insertProject } from '../src/store/projects.ts';
export { insertRegion, takeNextPort } from '../src/store/regions.ts';
export { makeAllServicesDue } from '../src/store/repositories.ts';
export { insertSamples } from '../src/store/samples.ts';
export { findNextSourceToRemove, findNextToPurge } from '../src/store/service-lists.ts';
export { changeService } from '../src/store/services.ts';
export { insertService } from '../src/store/new-services.ts';
export type { Db, Tables, Tx } from '../src/store/tables.ts';
export { refreshAllowedNetworks } from '../src/store/vpcs.ts';
export { makeServicesDue } from '../src/store/vpcs.ts';
