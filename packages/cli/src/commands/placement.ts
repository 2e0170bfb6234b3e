/** Where the pods of a region on Kubernetes run, and how they get their images. */
import { readFile } from 'node:fs/promises';
import type { Schemas } from '@howdah/client';
import type { Command } from 'commander';
import { given, verb, type Changing } from '../command.ts';
import { answered, connect } from '../connection.ts';
import { Failure } from '../exit.ts';
import { findService } from '../find.ts';
import { say, showAs } from '../output.ts';
import { KUBERNETES_REGION_VIEW } from '../views-region.ts';

type Placement = Schemas['Placement'];

export type Placing = {
  nodeSelector?: readonly string[];
  toleration?: readonly string[];
  spread?: readonly string[];
  priorityClass?: string;
  walStorageClass?: string;
  imagePullSecret?: string;
};

/** Adds the options of a placement to a command. */
export const placing = (command: Command): Command =>
  command
    .option('--node-selector <label...>', 'labels that nodes must have, KEY=VALUE')
    .option('--toleration <taint...>', 'taints that nodes may have, KEY=VALUE:EFFECT or KEY')
    .option('--spread <place...>', 'over zone, node or KEY=required: servers of one service')
    .option('--priority-class <name>', 'of all pods')
    .option('--wal-storage-class <name>', 'of a volume for WAL of new services')
    .option('--image-pull-secret <file>', 'config.json of docker or podman with credentials');

export function addPlacement(region: Command): void {
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
export function placementOf({
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
export const readPullSecret = async ({ imagePullSecret }: Placing): Promise<string | undefined> =>
  imagePullSecret === undefined ? undefined : readFile(imagePullSecret, 'utf8');
