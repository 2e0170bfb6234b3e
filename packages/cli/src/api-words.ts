/**
 * Errors of the API for people at a shell: the messages of the API name calls and fields, and here
 * these become commands and options.
 */

/** The command for a call that lists something, by the end of the call's path. */
const LISTS: readonly [call: RegExp, command: string][] = [
  [/^\/projects\/\S+\/keys$/, 'howdah key list'],
  [/^\/projects\/\S+\/regions$/, 'howdah region list'],
  [/^\/projects\/\S+\/vpcs\/\S+\/peerings$/, 'howdah peering list VPC'],
  [/^\/projects\/\S+\/vpcs$/, 'howdah vpc list'],
  [/^\/projects\/\S+\/allow-lists$/, 'howdah allow-list list'],
  [/^\/projects\/\S+\/exporters$/, 'howdah exporter list'],
  [/^\/projects\/\S+\/webhooks$/, 'howdah webhook list'],
  [/^\/projects\/\S+\/leases$/, 'howdah lease list'],
  [/\/alerts\/destinations$/, 'howdah alert destination list'],
  [/deliveries$/, 'howdah webhook deliveries WEBHOOK'],
  [/^\/projects\/\S+\/operations$/, 'howdah operation list'],
  [/^\/projects\/\S+\/deletedServices$/, 'howdah service list-deleted'],
  [/\/replicaSets$/, 'howdah replica-set list SERVICE'],
  [/\/metrics\/available-series$/, 'howdah metrics list SERVICE'],
  [/\/backups$/, 'howdah backup list SERVICE'],
  [/\/backupStatus$/, 'howdah backup status SERVICE'],
  [/\/backup-retention$/, 'howdah backup retention SERVICE'],
  [/\/extensions$/, 'howdah extension list SERVICE'],
  [/\/members$/, 'howdah service members SERVICE'],
  [/\/logs$/, 'howdah logs SERVICE'],
  [/\/limits$/, 'howdah project get'],
  [/^\/projects\/\S+\/services$/, 'howdah service list'],
  [/^\/projects$/, 'howdah project list'],
  [/^\/repositories$/, 'howdah repo list'],
  [/^\/regions$/, 'howdah region list'],
];

/** Commands for calls that messages name by the last word of their path. */
const COMMANDS: Readonly<Record<string, string>> = {
  updatePassword: 'set-password',
  setHA: 'ha',
  enablePooler: 'enable-pooler',
  disablePooler: 'disable-pooler',
  attachToVPC: 'attach-vpc',
  detachFromVPC: 'detach-vpc',
  attachToAllowList: 'attach-allow-list',
  detachFromAllowList: 'detach-allow-list',
  attachToExporter: 'attach-exporter',
  detachFromExporter: 'detach-exporter',
  setEnvironment: 'set-environment',
  setExpiry: 'set-expiry',
  setAutoSuspend: 'set-auto-suspend',
  forkService: 'fork',
  createReplicaSet: 'replica-set create',
  resizeReplicaSet: 'replica-set resize',
  deleteReplicaSet: 'replica-set delete',
  verifyBackup: 'backup verify',
  runBackup: 'backup run',
  setBackupRetention: 'backup set-retention',
  enableExtension: 'extension enable',
  disableExtension: 'extension disable',
};

/** The options that set a field of a body or query. */
const OPTIONS: Readonly<Record<string, string>> = {
  target_time: '--at',
  replica_count: '--replicas',
  sync_replica_count: '--sync',
  storage_gb: '--storage-gb',
  cpu_bound: '--cpu-bound',
  cpu_millis: '--cpu-millis',
  memory_gbs: '--memory-gbs',
  region_code: '--region',
  service_type: '--type',
  environment_tag: '--environment',
  enable_pooler: '--pooler',
  vpc_id: '--vpc',
  cidr_blocks: '--cidr',
  expires_at: '--expires',
  max_service_ttl_seconds: '--max-ttl',
  service_ttl_seconds: '--ttl',
  service_auto_suspend_seconds: '--auto-suspend',
  ttl_seconds: '--ttl',
  max_services: '--max-services',
  purge_on_expiry: '--purge-on-expiry',
  bucket_seconds: '--bucket-seconds',
  'force=true': '--force',
};

const OF_OPERATION = /\bGET \/projects\/\S+\/operations\/(\S+)/g;
const OF_SET = /what can be done to it is below \/projects\/\S+/g;
const OF_SETTER = /\bsetHA with replica_count (\d+)/g;
const OF_LIST = /\bGET (\/\S+?|…\/\S+?)(?=[\s),;:.]|$)(?: lists (them|those [^;.]*))?/g;
const OF_COMMAND = new RegExp(`\\b(${Object.keys(COMMANDS).join('|')})\\b`, 'g');
const OF_OPTION = new RegExp(`\\b(${Object.keys(OPTIONS).join('|')})\\b`, 'g');

/** A problem of a simulation's script, whose fields are written as the API names them. */
const OF_SCRIPT = /^(clock|delays_ms|failures|events)\b/;

/** A message of the API with commands in place of calls. */
export function inOurWords(message: string): string {
  if (OF_SCRIPT.test(message)) return message;
  return message
    .replaceAll(OF_OPERATION, 'howdah operation get $1')
    .replaceAll(OF_SET, 'howdah replica-set --help shows what can be done to it')
    .replaceAll(OF_SETTER, 'howdah service ha NAME --replicas $1')
    .replaceAll(OF_LIST, (whole, path: string, listed: string | undefined) => {
      const [, command] = LISTS.find(([call]) => call.test(path)) ?? [];
      if (command === undefined) return whole;
      return listed === undefined ? command : `${command} shows ${listed}`;
    })
    .replaceAll(OF_COMMAND, (name) => COMMANDS[name] ?? name)
    .replaceAll(OF_OPTION, (name) => OPTIONS[name] ?? name);
}
