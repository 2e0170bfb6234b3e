import { readFile } from 'node:fs/promises';
import { text as readAll } from 'node:stream/consumers';
import type { Schemas } from '@howdah/client';
import { ADDON_EXTENSIONS, type AddonExtension } from '@howdah/contract/types';
import type { Command } from 'commander';
import { given, noun, verb, type Changing, type Destroying, type Printing } from '../command.ts';
import { answered, connect } from '../connection.ts';
import { Failure } from '../exit.ts';
import { ofProject, findService } from '../find.ts';
import { note, say, showAs, showList } from '../output.ts';
import { confirmCall } from '../permission.ts';
import { FINDING_VIEW, REGION_VIEW, KUBERNETES_REGION_VIEW } from '../views.ts';

type Adding = Changing & {
  kubeconfig?: string;
  context?: string;
  host?: string;
  domain?: string;
  ports?: string;
  storageClass?: string;
  image?: readonly string[];
  extensions?: readonly string[];
  poolerImage?: string;
} & Placing;

type Storing = Changing & {
  s3: string;
  bucket: string;
  region: string;
  keyId: string;
  keyFile: string;
  caFile?: string;
  move?: boolean;
};

export function addRegion(program: Command): void {
  const region = noun(program, 'region', 'Show the regions and what each offers; add Kubernetes.');

  verb(region, 'list', {
    does:
      'List the regions with what each can run; ' +
      'json also gives the reasons for what it cannot.',
    example: 'howdah region list -o json',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    const connection = await connect();
    const regions = connection.client.GET('/projects/{project_id}/regions', {
      params: ofProject(connection),
    });
    await showList(output, await answered(regions), REGION_VIEW);
  });

  verb(region, 'doctor [region]', {
    does: 'Show what howdah doctor finds on the machine of the control plane, or in a cluster.',
    example: 'howdah region doctor',
    takes: ['output'],
  }).action(async (code: string | undefined, { output }: Printing) => {
    const { client } = await connect();
    const findings =
      code === undefined
        ? client.GET('/doctor')
        : client.GET('/regions/{region_code}/doctor', { params: { path: { region_code: code } } });
    await showList(output, await answered(findings), FINDING_VIEW);
  });

  addClusters(region);
}

/** The commands of regions on Kubernetes. */
function addClusters(region: Command): void {
  placing(
    verb(region, 'add <code>', {
      does: 'Add a Kubernetes cluster with CloudNativePG as a region (docs/kubernetes.md).',
      example: 'howdah region add kube --kubeconfig kube.yaml --host db.example.com',
      takes: ['output', 'dryRun'],
    }),
  )
    .option('--kubeconfig <file>', 'with its certificates and keys in it, - for standard input')
    .option('--context <name>', 'a context of the kubeconfig; default: its current one')
    .option('--host <host>', 'at which clients reach the nodes; default: that of the first node')
    .option('--domain <domain>', 'names for services, in place of host and ports: ID.DOMAIN:5432')
    .option('--ports <first-last>', 'ports of its services; default: 30000-32767')
    .option('--storage-class <name>', 'of volumes; default: the default class of the cluster')
    .option('--image <major=image...>', 'images of PostgreSQL, by major version')
    .option('--extensions <major=names...>', 'extensions of the images: timescaledb,vector')
    .option('--pooler-image <image>', 'image of PgBouncer, with its version as the tag')
    .action(async (code: string, options: Adding) => {
      const connection = await connect(options);
      const body = await bodyOf(code, options);
      const added = await answered(connection.client.POST('/regions', { body }));
      await showAs(options.output, added, KUBERNETES_REGION_VIEW.noun, () => {
        const at = added.domain === null ? added.host : `names in ${added.domain}`;
        say(`Services of the region ${code} run on ${added.server}, at ${at}.`);
        say(`Examine the cluster: howdah region doctor ${code}`);
      });
    });

  verb(region, 'object-store <region>', {
    does: 'Keep WAL and base backups of a region on Kubernetes in a bucket (docs/kubernetes.md).',
    example:
      'howdah region object-store kube --s3 https://s3.example.com --bucket backups ' +
      '--region eu-west-1 --key-id AKIA… --key-file s3.key',
    takes: ['output', 'dryRun'],
  })
    .requiredOption('--s3 <endpoint>', 'the address of the S3 server, https://HOST')
    .requiredOption('--bucket <name>', 'the bucket')
    .requiredOption('--region <region>', 'the region of the bucket')
    .requiredOption('--key-id <id>', 'the access key id')
    .requiredOption('--key-file <file>', 'a file with the secret key, - for standard input')
    .option('--ca-file <file>', 'certificates that sign the server’s')
    .option('--move', 'begin an empty archive at another place than before')
    .action(async (code: string, options: Storing) => {
      const connection = await connect(options);
      const { s3: endpoint, bucket, region: place, keyId, keyFile, caFile } = options;
      const body = {
        endpoint,
        bucket,
        region: place,
        key_id: keyId,
        key: (await readText(keyFile)).replace(/\n$/, ''),
        ...given('ca_pem', caFile === undefined ? undefined : await readFile(caFile, 'utf8')),
        ...given('move', options.move),
      };
      const params = { path: { region_code: code } };
      const set = await answered(
        connection.client.PUT('/regions/{region_code}/objectStore', { params, body }),
      );
      await showAs(options.output, set, KUBERNETES_REGION_VIEW.noun, () => {
        say(`New services of the region ${code} archive their WAL in the bucket ${bucket}.`);
        say('Services that run begin at their next restart: howdah service restart NAME');
        say(`Examine the cluster: howdah region doctor ${code}`);
      });
    });

  verb(region, 'set-images <region>', {
    does: 'Set all images of a region on Kubernetes; servers get them with their next restart.',
    example: 'howdah region set-images kube --image 17=IMAGE --extensions 17=vector',
    takes: ['output', 'dryRun'],
  })
    .requiredOption('--image <major=image...>', 'images of PostgreSQL, by major version')
    .option('--extensions <major=names...>', 'extensions of the images: timescaledb,vector')
    .option('--pooler-image <image>', 'image of PgBouncer; default: as it is')
    .action(async (code: string, options: Adding & { image: readonly string[] }) => {
      const connection = await connect(options);
      const params = { path: { region_code: code } };
      const body = { images: imagesOf(options.image), ...moreImagesOf(options) };
      const set = await answered(
        connection.client.PUT('/regions/{region_code}/images', { params, body }),
      );
      await showAs(options.output, set, KUBERNETES_REGION_VIEW.noun, () => {
        say(`Servers of the region ${code} get them when they start the next time.`);
        say('One that runs: howdah service restart NAME');
      });
    });

  addPlacement(region);

  verb(region, 'clusters', {
    does: 'List the regions on Kubernetes with their clusters.',
    example: 'howdah region clusters',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    const { client } = await connect();
    await showList(output, await answered(client.GET('/regions')), KUBERNETES_REGION_VIEW);
  });

  verb(region, 'remove <region>', {
    does: 'Remove a region on Kubernetes without services. Asks for confirmation on a terminal.',
    example: 'howdah region remove kube',
    takes: ['dryRun', 'yes'],
  }).action(async (code: string, options: Destroying) => {
    const connection = await connect(options);
    await confirmCall(connection, 'removeRegion', `Remove the region ${code}?`, options);
    const params = { path: { region_code: code } };
    await connection.client.DELETE('/regions/{region_code}', { params });
    note(`${code} is removed; nothing in its cluster was changed`);
  });
}

async function bodyOf(code: string, options: Adding): Promise<Schemas['AddRegion']> {
  const { kubeconfig, context, host, domain, ports, storageClass, image } = options;
  const [, first, last] = /^(\d{1,5})-(\d{1,5})$/.exec(ports ?? '') ?? [];
  if (ports !== undefined && (first === undefined || last === undefined))
    throw new Failure(`--ports: found ${ports}; expected FIRST-LAST`, 'usage');
  return {
    code,
    ...given('kubeconfig', kubeconfig === undefined ? undefined : await readText(kubeconfig)),
    ...given('context', context),
    ...given('host', host),
    ...given('domain', domain),
    ...given('first_port', first === undefined ? undefined : Number(first)),
    ...given('last_port', last === undefined ? undefined : Number(last)),
    ...given('storage_class', storageClass),
    ...given('images', image === undefined ? undefined : imagesOf(image)),
    ...moreImagesOf(options),
    ...given('placement', placementOf(options)),
    ...given('wal_storage_class', options.walStorageClass),
    ...given('image_pull_secret', await readPullSecret(options)),
  };
}

const moreImagesOf = ({ extensions, poolerImage }: Adding) => ({
  ...given('extensions', extensions === undefined ? undefined : extensionsOf(extensions)),
  ...given('pooler_image', poolerImage),
});

const readText = (file: string): Promise<string> =>
  file === '-' ? readAll(process.stdin) : readFile(file, 'utf8');

function imagesOf(texts: readonly string[]): Record<string, string> {
  const images = new Map<string, string>();
  for (const text of texts) {
    const [major, image] = byMajor('--image', text, 'IMAGE');
    if (images.has(major))
      throw new Failure(`--image: found two images of PostgreSQL ${major}`, 'usage');
    images.set(major, image);
  }
  return Object.fromEntries(images);
}

function extensionsOf(texts: readonly string[]): Schemas['AddRegion']['extensions'] {
  const extensions = new Map<string, AddonExtension[]>();
  for (const text of texts) {
    const [major, names] = byMajor('--extensions', text, 'timescaledb,vector');
    const found = names.split(',').map(oneExtension);
    extensions.set(major, [...new Set([...(extensions.get(major) ?? []), ...found])]);
  }
  return Object.fromEntries(extensions);
}

function oneExtension(name: string): AddonExtension {
  const found = ADDON_EXTENSIONS.find((one) => one === name);
  if (found !== undefined) return found;
  throw new Failure(`--extensions: found ${name}; expected timescaledb or vector`, 'usage');
}

/** @param value what is after the version, for the message */
function byMajor(option: string, text: string, value: string): [string, string] {
  const [, major, rest] = /^(\d+)=(.+)$/.exec(text) ?? [];
  if (major !== undefined && rest !== undefined) return [major, rest];
  throw new Failure(`${option}: found ${text}; expected MAJOR=${value}, like 17=${value}`, 'usage');
}

// Where the pods of a region on Kubernetes run, and how they get their images.

type Placement = Schemas['Placement'];

type Placing = {
  nodeSelector?: readonly string[];
  toleration?: readonly string[];
  spread?: readonly string[];
  priorityClass?: string;
  walStorageClass?: string;
  imagePullSecret?: string;
};

/** Adds the options of a placement to a command. */
const placing = (command: Command): Command =>
  command
    .option('--node-selector <label...>', 'labels that nodes must have, KEY=VALUE')
    .option('--toleration <taint...>', 'taints that nodes may have, KEY=VALUE:EFFECT or KEY')
    .option('--spread <place...>', 'over zone, node or KEY=required: servers of one service')
    .option('--priority-class <name>', 'of all pods')
    .option('--wal-storage-class <name>', 'of a volume for WAL of new services')
    .option('--image-pull-secret <file>', 'config.json of docker or podman with credentials');

function addPlacement(region: Command): void {
  placing(
    verb(region, 'set-placement <region>', {
      does: 'Set where pods of a region on Kubernetes run; servers move with their next restart.',
      example: 'howdah region set-placement kube --node-selector pool=databases --spread zone',
      takes: ['output', 'dryRun'],
    }),
  )
    .option('--service <service>', 'only those of a service, by its id or name')
    .option('--anywhere', 'no nodes, tolerations, spread and priority are set any more')
    .action(async (code: string, options: Setting) => {
      const connection = await connect(options);
      const { service, walStorageClass, imagePullSecret } = options;
      const body: Schemas['SetPlacement'] = {
        ...given('placement', options.anywhere === true ? {} : placementOf(options)),
        ...given('wal_storage_class', noneIsNull(walStorageClass)),
        ...given(
          'image_pull_secret',
          imagePullSecret === NONE ? null : await readPullSecret(options),
        ),
        ...given(
          'service_id',
          service === undefined ? undefined : (await findService(connection, service)).service_id,
        ),
      };
      if (Object.keys(body).every((name) => name === 'service_id'))
        throw new Failure(
          'expected --node-selector, --toleration, --spread, --priority-class, --anywhere, ' +
            '--wal-storage-class or --image-pull-secret',
          'usage',
        );
      const params = { path: { region_code: code } };
      const set = await answered(
        connection.client.PUT('/regions/{region_code}/placement', { params, body }),
      );
      await showAs(options.output, set, KUBERNETES_REGION_VIEW.noun, () => {
        say(`Servers of the region ${code} move when they start the next time.`);
        say('One that runs: howdah service restart NAME');
        say(`Which nodes there are for them: howdah region doctor ${code}`);
      });
    });
}

type Setting = Changing & Placing & { service?: string; anywhere?: boolean };

const NONE = 'none';
const noneIsNull = (text: string | undefined): string | null | undefined =>
  text === NONE ? null : text;

/** The placement that options name; undefined: they name none. */
function placementOf({
  nodeSelector,
  toleration,
  spread,
  priorityClass,
}: Placing): Placement | undefined {
  const placement: Placement = {
    ...given(
      'node_selector',
      nodeSelector === undefined ? undefined : Object.fromEntries(nodeSelector.map(labelOf)),
    ),
    ...given('tolerations', toleration?.map(tolerationOf)),
    ...given('topology_spread', spread?.map(spreadOf)),
    ...given('priority_class', priorityClass),
  };
  return Object.keys(placement).length === 0 ? undefined : placement;
}

function labelOf(text: string): [string, string] {
  const [, key, value] = /^([^=]+)=(.*)$/.exec(text) ?? [];
  if (key !== undefined && value !== undefined) return [key, value];
  throw new Failure(`--node-selector: found ${text}; expected KEY=VALUE`, 'usage');
}

const EFFECTS = ['NoSchedule', 'PreferNoSchedule', 'NoExecute'] as const;

function tolerationOf(text: string): NonNullable<Placement['tolerations']>[number] {
  const [, key, value, named] = /^([^=:]+)(?:=([^:]*))?(?::(.*))?$/.exec(text) ?? [];
  const effect = EFFECTS.find((one) => one === named);
  if (key === undefined || (named !== undefined && effect === undefined))
    throw new Failure(
      `--toleration: found ${text}; expected KEY, KEY=VALUE or KEY=VALUE:EFFECT, where EFFECT is ` +
        EFFECTS.join(', '),
      'usage',
    );
  return { key, ...given('value', value), ...given('effect', effect) };
}

const KEYS: Readonly<Record<string, string>> = {
  zone: 'topology.kubernetes.io/zone',
  node: 'kubernetes.io/hostname',
};

function spreadOf(text: string): NonNullable<Placement['topology_spread']>[number] {
  const [, name = '', required] = /^([^=]+)(=required)?$/.exec(text) ?? [];
  if (name === '')
    throw new Failure(
      `--spread: found ${text}; expected zone, node or the key of a label, with =required if a ` +
        'server must wait that cannot be placed so',
      'usage',
    );
  return {
    topology_key: KEYS[name] ?? name,
    ...(required === undefined ? {} : { required: true }),
  };
}

/** @returns undefined: none is named */
const readPullSecret = async ({ imagePullSecret }: Placing): Promise<string | undefined> =>
  imagePullSecret === undefined ? undefined : readFile(imagePullSecret, 'utf8');
