/** The table columns and detail lines of each kind of thing. */
import type { Schemas } from '@howdah/client';
import { placeOf } from '@howdah/contract/connect';
import { partsOf } from '@howdah/contract/service-parts';
import { SHARED_CPU_MILLIS } from '@howdah/contract/sizes';
import { waitingNote } from '@howdah/contract/waits';
import { PROJECT_LIMITS, RETENTION_DAYS } from '@howdah/contract/values';
import { endpointOf, poolerOf, variablesOf } from './address.ts';
import { tookMs } from './follow.ts';
import { dateAndDistance, lengthOf, relative } from './moment.ts';
import { UNNAMED, type NameOf, type NamesOfService } from './names.ts';
import { duration, type View } from './output.ts';

type Service = Schemas['Service'];

export const SERVICE_NOUN = 'service';

/** @param ca as {@link variablesOf} takes it */
export const serviceView = (
  ca: string | null,
  { serviceName, vpcName, listName, exporterName }: NamesOfService = UNNAMED,
): View<Service> => ({
  noun: SERVICE_NOUN,
  id: ({ service_id: id }) => id,
  columns: [
    ['NAME', ({ name }) => name],
    ['TYPE', ({ service_type: type }) => type],
    ['STATUS', statusOf],
    ['CPU', ({ resources }) => coresOf(resources[0]?.spec.cpu_millis)],
    ['MEMORY', ({ resources }) => memoryOf(resources[0]?.spec.memory_gbs)],
    ['WITH', (service) => [...partsOf(service), ...endOf(service)].join(', ')],
    ['ENDPOINT', (service) => placeOf(endpointOf(service))],
  ],
  details: [
    ['POOLER', (service) => placeOrNone(poolerOf(service))],
    ['VPC', ({ vpc_endpoint: inside }) => (inside === undefined ? '' : vpcName(inside.vpc_id))],
    ['ALLOW LIST', ({ allow_list_id: list }) => named(list, listName)],
    ['EXPORTER', ({ metric_exporter_id: exporter }) => named(exporter, exporterName)],
    ['ENVIRONMENT', ({ metadata }) => metadata.environment],
    ['REGION', ({ region_code: region }) => region],
    [
      'REPLICAS',
      ({ ha_replicas: { replica_count: all, sync_replica_count: sync } }) =>
        all === 0 ? '' : `${all}, ${sync} of them synchronous`,
    ],
    [
      'READ REPLICA SETS',
      ({ read_replica_sets: sets }) =>
        sets.map(({ name, nodes }) => `${name} (${nodes})`).join(', '),
    ],
    [
      'FORKED FROM',
      ({ forked_from: parent }) => (parent === undefined ? '' : serviceName(parent.service_id)),
    ],
    [
      'DISK',
      ({ metrics, resources }) =>
        (metrics.storage_mb === null ? '' : `${metrics.storage_mb} MB of `) +
        `${resources[0]?.spec.storage_gb ?? 0} GB`,
    ],
    ['CPU BOUND', ({ resources }) => boundOf(resources[0]?.spec.cpu_bound)],
    ['CPU IN USE', cpuInUseOf],
    ['JUST NOW', (service) => waitingNote(service) ?? ''],
    ['POSTGRESQL', ({ pg_version: version }) => version ?? ''],
    ['CREATED', ({ created }) => dateAndDistance(created)],
    [
      'FALLS ASLEEP',
      ({ auto_suspend_seconds: seconds }) =>
        seconds === undefined ? '' : `after ${lengthOf(seconds)} without use`,
    ],
    ['LAST USED', ({ last_active_at: at }) => (at === undefined ? '' : dateAndDistance(at))],
    [
      'EXPIRES',
      ({ expires_at: end, purge_on_expiry: purges }) =>
        end === undefined
          ? ''
          : `${dateAndDistance(end)}${purges === true ? ', and cannot be restored then' : ''}`,
    ],
  ],
  variables: (service) => ({
    SERVICE_ID: service.service_id,
    ...variablesOf({
      ...endpointOf(service),
      ca,
      ...(service.initial_password === undefined ? {} : { password: service.initial_password }),
    }),
  }),
});

const statusOf = ({ status, suspended }: Service): string =>
  suspended === true ? `${status}, asleep` : status;

const endOf = ({ expires_at: end }: Service): string[] =>
  end === undefined ? [] : [`ends ${relative(end)}`];

const boundOf = (bound: boolean | undefined): string =>
  bound === undefined ? '' : bound ? 'its size' : 'none, although its region has one';

export const DELETED_VIEW: View<Schemas['DeletedService']> = {
  noun: 'deleted_service',
  id: ({ service_id: id }) => id,
  columns: [
    ['NAME', ({ name }) => name],
    ['TYPE', ({ service_type: type }) => type],
    ['ENVIRONMENT', ({ environment }) => environment],
    ['DELETED', ({ deleted }) => relative(deleted)],
    [
      'RESTORABLE UNTIL',
      ({ restorable_until: until, restore_at_risk: isAtRisk }) =>
        until === undefined
          ? ''
          : `${relative(until)}${isAtRisk ? ', earlier if the disk fills' : ''}`,
    ],
    ['FROM', ({ repository }) => (repository === undefined ? 'its region' : repository)],
  ],
};

export const MEMBER_VIEW: View<Schemas['Member']> = {
  noun: 'member',
  columns: [
    ['NODE', ({ node }) => String(node)],
    ['ROLE', ({ role }) => role],
    ['STATE', ({ state }) => state],
    ['SYNCHRONOUS', ({ synchronous }) => yesOrNo(synchronous)],
    [
      'BEHIND',
      ({ lag_bytes: bytes, lag_seconds: seconds }) =>
        bytes === null
          ? ''
          : `${bytes} bytes${seconds === null ? '' : `, ${duration(seconds * 1000)}`}`,
    ],
  ],
};

export const SET_VIEW: View<Schemas['ReadReplicaSet']> = {
  noun: 'replica_set',
  id: ({ id }) => id,
  columns: [
    ['NAME', ({ name }) => name],
    ['NODES', ({ nodes }) => String(nodes)],
    ['STATUS', ({ status }) => status],
    ['CPU', ({ cpu_millis: cpu }) => coresOf(cpu)],
    ['MEMORY', ({ memory_gbs: memory }) => memoryOf(memory)],
    ['ENDPOINT', (set) => placeOf(endpointOf(set))],
  ],
};

export const setDetailView = (vpcName: NameOf): View<Schemas['ReadReplicaSetDetail']> => ({
  ...SET_VIEW,
  details: [
    ['POOLER', (set) => placeOrNone(poolerOf(set))],
    ['VPC', ({ vpc_endpoint: endpoint }) => named(endpoint?.vpc_id, vpcName)],
    ['ENVIRONMENT', ({ metadata }) => metadata.environment],
    ['PURPOSE', ({ purpose }) => purpose],
    ['LAG LIMIT', ({ lag_limit: { bytes, seconds } }) => `${bytes} bytes, ${seconds} s`],
    [
      'NODES READY',
      ({ node_states: states }) =>
        states
          .map(({ node, serving, detail }) => `${node}: ${serving ? 'yes' : 'no'}, ${detail}`)
          .join('; '),
    ],
  ],
});

export const operationView = (
  serviceName: NameOf,
  keyName: NameOf,
): View<Schemas['Operation']> => ({
  noun: 'operation',
  columns: [
    ['ID', ({ id }) => id],
    ['KIND', ({ kind }) => kind],
    ['SERVICE', ({ service_id: service }) => serviceName(service)],
    ['STATUS', ({ status }) => status],
    ['ACCEPTED', ({ created }) => relative(created)],
    [
      'TOOK',
      ({ created, finished }) =>
        finished === null ? 'under way' : duration(Date.parse(finished) - Date.parse(created)),
    ],
    ['REQUESTED BY', ({ requested_by: by }) => keyName(by)],
  ],
});

const HOW_IT_WENT: Record<
  Schemas['Operation']['steps'][number]['outcome'],
  (took: string) => string
> = {
  running: () => 'under way',
  ok: (took) => took,
  failed: (took) => `failed after ${took}`,
  interrupted: () => 'interrupted',
};

/** The lines of an operation and its steps. */
export function linesOf(
  {
    created,
    kind,
    status,
    requested_by,
    error,
    steps,
    remaining_seconds: remaining,
    not_carried: left = [],
  }: Schemas['Operation'],
  keyName: NameOf,
): string[] {
  const more = remaining === undefined ? '' : `, about ${duration(remaining * 1000)} more`;
  const why = error === undefined ? '' : `: ${error}`;
  return [
    `${relative(created)} ${kind} ${status}${more}, requested by ${keyName(requested_by)}${why}`,
    ...steps.map((step) => {
      const detail = step.detail === null ? '' : `, ${step.detail}`;
      return `  ${step.name} ${HOW_IT_WENT[step.outcome](duration(tookMs(step)))}${detail}`;
    }),
    ...left.map((line) => `  not carried over: ${line}`),
  ];
}

function boundsInWords({
  service_ttl_seconds: ttl,
  max_service_ttl_seconds: most,
  service_auto_suspend_seconds: sleep,
  max_services: count,
}: Pick<
  Schemas['Key'],
  | 'service_ttl_seconds'
  | 'max_service_ttl_seconds'
  | 'service_auto_suspend_seconds'
  | 'max_services'
>): string[] {
  return [
    ...(ttl === undefined ? [] : [`services for ${lengthOf(ttl)}`]),
    ...(most === undefined ? [] : [`for ${lengthOf(most)} at most`]),
    ...(sleep === undefined ? [] : [`asleep after ${lengthOf(sleep)}`]),
    ...(count === undefined ? [] : [`${count} services at most`]),
  ];
}

export const KEY_VIEW: View<Schemas['Key']> = {
  noun: 'key',
  columns: [
    ['KEY', ({ public_key: key }) => key],
    ['NAME', ({ name }) => name],
    [
      'MAY',
      ({ role, dry_run_only: dry, fork_only: fork, ...bounds }) =>
        [
          role,
          ...(dry ? ['dry runs only'] : []),
          ...(fork ? ['forks only'] : []),
          ...boundsInWords(bounds),
        ].join(', '),
    ],
    ['LAST USED', ({ last_used: used }) => (used === null ? 'never' : relative(used))],
    [
      'VALID',
      ({ revoked_at: revoked, expires_at: expires }) =>
        revoked !== null
          ? `revoked ${relative(revoked)}`
          : expires === null
            ? 'yes'
            : `ends ${relative(expires)}`,
    ],
  ],
};

/** The versions that a create may ask for. */
function majorsOf(versions: Schemas['Region']['service_types'][number]['versions']): string {
  return versions
    .flatMap(({ pg_version: major, available }) => (available ? [major] : []))
    .join(', ');
}

export const REGION_VIEW: View<Schemas['Region']> = {
  noun: 'region',
  columns: [
    ['CODE', ({ code }) => code],
    ['ENGINE', ({ engine }) => engine],
    [
      'TYPES',
      ({ service_types: types }) =>
        types
          .flatMap(({ service_type: type, available, versions }) =>
            available ? [`${type} (${majorsOf(versions)})`] : [],
          )
          .join(', '),
    ],
    ['REPLICAS', ({ high_availability: { available } }) => yesOrNo(available)],
    ['POOLER', ({ pooler: { available } }) => yesOrNo(available)],
    ['VPCS', ({ vpc: { method } }) => method],
    ['A FORK', ({ fork_cost: cost }) => cost],
    [
      'NOT POSSIBLE',
      ({ actions }) =>
        actions
          .flatMap(({ action, reason }) => (reason === undefined ? [] : [`${action}: ${reason}`]))
          .join('; '),
    ],
  ],
};

export const EXTENSION_VIEW: View<Schemas['ServiceExtension']> = {
  noun: 'extension',
  columns: [
    ['NAME', ({ name }) => name],
    ['STATE', ({ allowed, state }) => (allowed || state === 'enabled' ? state : 'refused')],
    ['VERSION', ({ version, default_version: newest }) => version ?? newest ?? ''],
    ['RESTARTS', ({ preload }) => yesOrNo(preload)],
    ['WHY', ({ reason }) => reason],
  ],
};

export const INSTALLED_EXTENSIONS_VIEW: View<Schemas['InstalledExtensions']> = {
  noun: 'installation',
  columns: [
    ['POSTGRESQL', ({ postgres_version: version }) => version],
    ['SOURCE', ({ source }) => source],
    ['TIMESCALEDB', ({ timescaledb_edition: edition }) => edition ?? 'none'],
    ['ALLOWED', ({ extensions }) => namesOf(extensions.filter(({ allowed }) => allowed))],
    ['REFUSED', ({ extensions }) => namesOf(extensions.filter(({ allowed }) => !allowed))],
  ],
};

const namesOf = (extensions: readonly Schemas['Extension'][]): string =>
  extensions.map(({ name }) => name).join(', ');

export const FINDING_VIEW: View<Schemas['Finding']> = {
  noun: 'finding',
  columns: [
    ['STATE', ({ state }) => state],
    ['WHAT', ({ what }) => what],
    ['FOUND', ({ found }) => found],
    ['REMEDY', ({ remedy }) => remedy ?? ''],
  ],
};

export const SIMULATION_VIEW: View<Schemas['Simulation']> = {
  noun: 'simulation',
  columns: [
    ['NOW', ({ now }) => now],
    ['SCRIPT', ({ script }) => JSON.stringify(script)],
  ],
};

export const LEASE_VIEW: View<Schemas['Lease']> = {
  noun: 'lease',
  columns: [
    ['ID', ({ id }) => id],
    ['FROM', ({ from }) => from],
    ['RESET', ({ reset }) => reset],
    ['READY', ({ ready, problem }) => (ready ? 'yes' : (problem ?? 'not yet'))],
    ['ENDPOINT', ({ endpoint }) => placeOf(endpoint)],
    ['DATABASE', ({ database }) => database],
    ['ENDS', ({ expires_at: at }) => (at === undefined ? '' : relative(at))],
  ],
};

export const WEBHOOK_VIEW: View<Schemas['Webhook']> = {
  noun: 'webhook',
  id: ({ id }) => id,
  columns: [
    ['URL', ({ url }) => url],
    ['TYPES', ({ types }) => (types.length === 0 ? 'all' : types.join(','))],
    ['CREATED', ({ created }) => relative(created)],
  ],
};

export const DELIVERY_VIEW: View<Schemas['Delivery']> = {
  noun: 'delivery',
  columns: [
    ['ID', ({ id }) => id],
    ['TYPE', ({ type }) => type],
    ['STATUS', ({ status }) => status],
    ['ATTEMPTS', ({ attempts }) => String(attempts)],
    ['NEXT', ({ next_attempt: next }) => (next === null ? '' : relative(next))],
    ['LAST', ({ error, response_status: status }) => error ?? String(status ?? '')],
  ],
};

export const EXPORTER_VIEW: View<Schemas['Exporter']> = {
  noun: 'exporter',
  id: ({ exporter_id: id }) => id,
  columns: [
    ['NAME', ({ name }) => name],
    ['TYPE', ({ type }) => type],
    ['URL', ({ config: { url, endpoint } }) => url ?? endpoint ?? ''],
    ['LAST SUCCESS', ({ last_success: at }) => (typeof at === 'string' ? relative(at) : '')],
  ],
  details: [
    ['USERNAME', ({ config: { username } }) => username ?? ''],
    ['HEADERS', ({ config: { header_names: names } }) => names?.join(', ') ?? ''],
    ['REGION', ({ region_code: region }) => region],
    ['WARNING', ({ warning }) => warning ?? ''],
    ['CREATED', ({ created }) => dateAndDistance(created)],
  ],
};

export const auditView = (serviceName: NameOf, keyName: NameOf): View<Schemas['AuditEntry']> => ({
  noun: 'entry',
  columns: [
    ['AT', ({ at }) => relative(at)],
    ['KEY', ({ public_key: key }) => (key === null ? 'none' : keyName(key))],
    ['FROM', ({ address }) => address],
    ['CALL', ({ call }) => call],
    ['SERVICE', ({ service_id: service }) => (service === undefined ? '' : serviceName(service))],
    [
      'OUTCOME',
      ({ code, status, count }) =>
        `${code ?? status}${count === undefined ? '' : ` (${count} times)`}`,
    ],
    ['OPERATION', ({ operation_id: operation }) => operation ?? ''],
  ],
});

export const AUTH_VIEW: View<Schemas['AuthInfo']> = {
  noun: 'auth',
  columns: [
    ['KEY', ({ api_key: key }) => key.public_key],
    ['NAME', ({ api_key: key }) => key.name],
    ['ROLE', ({ api_key: key }) => key.role],
    ['RESTRICTIONS', ({ api_key: key }) => restrictionsOf(key)],
    // HD_PROJECT takes the id.
    ['PROJECT', ({ api_key: { project } }) => `${project.name} (${project.id})`],
    ['CREATED', ({ api_key: key }) => dateAndDistance(key.created)],
  ],
};

function restrictionsOf({ fork_only, dry_run_only }: Schemas['AuthInfo']['api_key']): string {
  return [fork_only === true ? 'fork_only' : '', dry_run_only === true ? 'dry_run_only' : '']
    .filter((text) => text !== '')
    .join(', ');
}

/** The name of a thing that there may be. */
const named = (id: string | null | undefined, nameOf: NameOf): string =>
  id === null || id === undefined ? '' : nameOf(id);

function placeOrNone(endpoint: Schemas['Endpoint'] | undefined): string {
  return endpoint === undefined ? '' : placeOf(endpoint);
}

function cpuInUseOf({ metrics, resources }: Service): string {
  const { milli_cpu: used } = metrics;
  if (used === null) return '';
  const guaranteed = resources[0]?.spec.cpu_millis ?? SHARED_CPU_MILLIS;
  const beyond = used > guaranteed ? `, ${(used - guaranteed) / 1000} of it beyond` : '';
  return `${used / 1000}${beyond} (guarantee: ${guaranteed / 1000})`;
}

function coresOf(cpuMillis: number | undefined): string {
  return cpuMillis === undefined ? 'shared' : `${cpuMillis / 1000}`;
}

function memoryOf(gbs: number | undefined): string {
  return gbs === undefined ? 'shared' : `${gbs} GB`;
}

function yesOrNo(value: boolean): string {
  return value ? 'yes' : 'no';
}

// The table columns and detail lines of allow lists, VPCs and peerings.

export const ALLOW_LIST_VIEW: View<Schemas['AllowList']> = {
  noun: 'allow_list',
  id: ({ allow_list_id: id }) => id,
  columns: [
    ['DESCRIPTION', ({ description }) => description],
    ['NETWORKS', ({ cidr_blocks: networks }) => networks.join(', ')],
  ],
  details: [['CREATED', ({ created_at: created }) => dateAndDistance(created)]],
};

export const VPC_VIEW: View<Schemas['Vpc']> = {
  noun: 'vpc',
  id: ({ id }) => id,
  columns: [
    ['NAME', ({ name }) => name],
    ['CIDR', ({ cidr }) => cidr],
    ['REGION', ({ region_code: region }) => region],
  ],
};

/** @param peerName the name of the other VPC */
export const peeringView = (
  peerName: (peering: Schemas['Peering']) => string,
): View<Schemas['Peering']> => ({
  noun: 'peering',
  id: ({ id }) => id,
  columns: [
    ['WITH', peerName],
    ['STATUS', ({ status }) => status],
    ['WHY', ({ error_message: why }) => why ?? ''],
  ],
});

// How projects are shown.

export const PROJECT_VIEW: View<Schemas['Project']> = {
  noun: 'project',
  id: ({ id }) => id,
  columns: [['NAME', ({ name }) => name]],
};

export const PROJECT_DETAIL_VIEW: View<Schemas['ProjectDetails']> = {
  ...PROJECT_VIEW,
  details: [
    ...PROJECT_LIMITS.map(
      (limit) =>
        [
          limit.replace('_', ' ').toUpperCase(),
          ({ limits, used }: Schemas['ProjectDetails']) => {
            const most = limits[limit];
            return most === null || most === undefined
              ? `${used[limit]}, no limit`
              : `${used[limit]} of ${most}`;
          },
        ] as const,
    ),
    [
      'CPU IN USE',
      ({ in_use: { cpu_millis: used, cpu_beyond_millis: beyond } }) =>
        `${used}${beyond === 0 ? '' : `, ${beyond} of it beyond the guarantees`}`,
    ],
    [
      'BACKUP RETENTION',
      ({ limits: { backup_retention_days: most } }) => `${most ?? RETENTION_DAYS.max} days at most`,
    ],
  ],
};

// The table columns of regions on Kubernetes.

/** The labels of nodes, and the places that servers are spread over. */
function placeOfRegion({
  placement: { node_selector: labels = {}, topology_spread: spread = [] },
  service_placements: services,
}: Schemas['KubernetesRegion']): string {
  const parts = [
    ...Object.entries(labels).map(([key, value]) => `${key}=${value}`),
    ...spread.map(({ topology_key: key }) => `over ${key.replace(/^.*\//, '')}`),
    ...(Object.keys(services).length === 0 ? [] : ['services differ']),
  ];
  return parts.length === 0 ? 'any' : parts.join(', ');
}

export const KUBERNETES_REGION_VIEW: View<Schemas['KubernetesRegion']> = {
  noun: 'region',
  columns: [
    ['CODE', ({ code }) => code],
    ['CLUSTER', ({ server }) => server],
    ['HOST', ({ host, domain }) => (domain === null ? host : `*.${domain}`)],
    [
      'PORTS',
      ({ first_port: first, last_port: last }) =>
        first === last ? `${first}` : `${first}-${last}`,
    ],
    ['STORAGE CLASS', ({ storage_class: name }) => name ?? 'default'],
    ['NODES', placeOfRegion],
    ['OBJECT STORE', ({ object_store: store }) => store?.bucket ?? 'none'],
    ['POSTGRESQL', ({ images }) => Object.keys(images).join(', ')],
  ],
};

// The table columns and detail lines of repositories.

export const REPOSITORY_VIEW: View<Schemas['Repository']> = {
  noun: 'repository',
  id: ({ id }) => id,
  columns: [
    ['NAME', ({ name }) => name],
    ['LOCATION', ({ location }) => location],
    ['SERVICES', ({ services }) => String(services)],
    ['BEHIND', ({ behind_seconds: seconds }) => (seconds === null ? 'unknown' : `${seconds} s`)],
    ['PROBLEM', ({ problem }) => problem ?? 'none'],
  ],
  details: [
    [
      'BACKUPS',
      ({ backups_mb: size, last_backup: last, waiting_services: waiting }) =>
        last === null
          ? 'none yet'
          : `${size} MB, the newest ${dateAndDistance(last)}` +
            (waiting === 0 ? '' : `; ${waiting} services have none yet`),
    ],
    ['WAITING', ({ backlog_mb: megabytes }) => `${megabytes} MB of WAL`],
    ['KEPT', ({ retention_days: days }) => `${days} days`],
    [
      'CONTROL PLANE',
      ({ control_saved: saved }) => (saved === null ? 'not yet' : dateAndDistance(saved)),
    ],
    ['ADDED', ({ created }) => dateAndDistance(created)],
  ],
};
