/** Schemas of regions on Kubernetes. */
import { Type } from 'typebox';
import { documented, Named, Ref, StringEnum } from '../schema.ts';
import { VISIBLE_PATTERN } from '../text.ts';
import { ADDON_EXTENSIONS } from '../types.ts';
import { closed, dateTime } from './parts.ts';

/** The most regions on Kubernetes of an installation. */
export const MAX_KUBERNETES_REGIONS = 16;

/** The ports of Services of the type NodePort, unless Kubernetes is configured otherwise. */
export const NODE_PORTS = { first: 30_000, last: 32_767 } as const;

/** The port of all services of a region with a domain. */
export const GATEWAY_PORT = 5432;

const port = (description: string) => Type.Integer({ minimum: 1, maximum: 65_535, description });
const text = (description: string, maxLength = 253) =>
  Type.String({ minLength: 1, maxLength, pattern: VISIBLE_PATTERN, description });

const MAJOR_VERSION = '^(1[6-9]|[2-9][0-9])$';
/** The generator of the OpenAPI document loses the pattern of names. */
const majorVersions = documented({ propertyNames: { pattern: MAJOR_VERSION } });

const images = Type.Record(
  Type.String({ pattern: MAJOR_VERSION }),
  Type.String({ maxLength: 512, pattern: '^[!-~]+$', description: 'an image' }),
  {
    description: 'the image of PostgreSQL for each major version, for CloudNativePG',
    minProperties: 1,
    maxProperties: 8,
    ...majorVersions,
    ...closed,
  },
);

const extensions = Type.Record(
  Type.String({ pattern: MAJOR_VERSION }),
  Type.Array(StringEnum(ADDON_EXTENSIONS), {
    maxItems: ADDON_EXTENSIONS.length,
    uniqueItems: true,
  }),
  {
    description:
      'the extensions of each image beside the contributed modules, for services of the types ' +
      'TIMESCALEDB (timescaledb) and VECTOR (vector)',
    maxProperties: 8,
    ...majorVersions,
    ...closed,
  },
);

const poolerImage = Type.String({
  maxLength: 512,
  pattern: '^[!-~]+:[0-9]+[.][0-9]+[!-~]*$',
  description: 'the image of PgBouncer, with its version as the tag: REPOSITORY:1.25.1',
});

/** The form of the keys of labels and taints in Kubernetes, and of values. */
const KEY_PATTERN = '^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$';
const VALUE_PATTERN = '^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$';
const NAME_PATTERN = '^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$';

const className = (description: string) => Type.String({ pattern: NAME_PATTERN, description });
const labelKey = (description: string) => Type.String({ pattern: KEY_PATTERN, description });
const labelValue = (description: string) => Type.String({ pattern: VALUE_PATTERN, description });

export const PlacementSchema = Named(
  'Placement',
  Type.Object(
    {
      node_selector: Type.Optional(
        Type.Record(Type.String({ pattern: KEY_PATTERN }), labelValue('the value of the label'), {
          description: 'labels that a node must have',
          maxProperties: 16,
          ...closed,
        }),
      ),
      tolerations: Type.Optional(
        Type.Array(
          Type.Object(
            {
              key: labelKey('of the taint'),
              value: Type.Optional(labelValue('of the taint; absent: any')),
              effect: Type.Optional(
                StringEnum(['NoSchedule', 'PreferNoSchedule', 'NoExecute'], {
                  description: 'of the taint; absent: any',
                }),
              ),
            },
            closed,
          ),
          { description: 'taints of nodes that are no obstacle', maxItems: 16 },
        ),
      ),
      topology_spread: Type.Optional(
        Type.Array(
          Type.Object(
            {
              topology_key: labelKey(
                'the label of nodes whose values are the places, like topology.kubernetes.io/zone',
              ),
              max_skew: Type.Optional(
                Type.Integer({
                  minimum: 1,
                  maximum: 10,
                  description: 'by how many servers two places may differ; default: 1',
                }),
              ),
              required: Type.Optional(
                Type.Boolean({
                  description:
                    'whether a server waits that cannot be placed so; default: false, it is ' +
                    'placed all the same',
                }),
              ),
            },
            closed,
          ),
          { description: 'how the servers of one service are spread over nodes', maxItems: 4 },
        ),
      ),
      priority_class: Type.Optional(className('the PriorityClass of pods')),
    },
    closed,
  ),
);
export type Placement = Type.Static<typeof PlacementSchema>;

const walClass = className(
  'the storage class of a second volume of new services, for their WAL; they have no snapshots',
);
const pullSecret = Type.String({
  minLength: 2,
  maxLength: 65_536,
  description:
    'the credentials of registries of images, as the config.json of docker or podman: ' +
    '{"auths":{"HOST":{"auth":"…"}}}',
});

export const SetPlacementBody = Named(
  'SetPlacement',
  Type.Object(
    {
      placement: Type.Optional(Ref(PlacementSchema)),
      service_id: Type.Optional(
        Type.String({
          pattern: '^[a-z0-9]{10}$',
          description:
            'a service or read replica set of the region, whose fields come before those of the ' +
            'region; absent: the region',
        }),
      ),
      wal_storage_class: Type.Optional(
        Type.Union([walClass, Type.Null()], { description: 'null: WAL is with the data' }),
      ),
      image_pull_secret: Type.Optional(
        Type.Union([pullSecret, Type.Null()], { description: 'null: it is removed' }),
      ),
    },
    closed,
  ),
);
export type SetPlacementBody = Type.Static<typeof SetPlacementBody>;

export const AddRegionBody = Named(
  'AddRegion',
  Type.Object(
    {
      code: Type.String({
        pattern: '^[a-z][a-z0-9-]{0,31}$',
        description: 'its code: lower-case letters, digits and hyphens',
      }),
      kubeconfig: Type.Optional(
        Type.String({
          minLength: 1,
          maxLength: 65_536,
          description:
            'a kubeconfig, with its certificates and keys in it, or with a program for ' +
            'credentials that HOWDAH_CREDENTIAL_PROGRAMS allows; absent: the service account of ' +
            'the pod that the control plane runs in',
        }),
      ),
      context: Type.Optional(text('a context of the kubeconfig; default: its current one')),
      host: Type.Optional(
        Type.String({
          maxLength: 253,
          pattern: '^[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?$',
          description:
            'the name or address at which clients reach the nodes; default: that of the first node',
        }),
      ),
      domain: Type.Optional(
        Type.String({
          maxLength: 200,
          pattern: '^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?[.])+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$',
          description:
            'of the names of its services, in place of host and ports: they are at ' +
            'ID.DOMAIN:5432, through a TLS gateway in the cluster that *.DOMAIN leads to',
        }),
      ),
      first_port: Type.Optional(port(`of its services; default: ${NODE_PORTS.first}`)),
      last_port: Type.Optional(port(`of its services; default: ${NODE_PORTS.last}`)),
      storage_class: Type.Optional(text('of volumes; default: the default class of the cluster')),
      images: Type.Optional(images),
      extensions: Type.Optional(extensions),
      pooler_image: Type.Optional(poolerImage),
      placement: Type.Optional(Ref(PlacementSchema)),
      wal_storage_class: Type.Optional(walClass),
      image_pull_secret: Type.Optional(pullSecret),
    },
    closed,
  ),
);
export type AddRegionBody = Type.Static<typeof AddRegionBody>;

export const SetImagesBody = Named(
  'SetImages',
  Type.Object(
    {
      images,
      extensions: Type.Optional(extensions),
      pooler_image: Type.Optional(poolerImage),
    },
    closed,
  ),
);
export type SetImagesBody = Type.Static<typeof SetImagesBody>;

const secret = (description: string) =>
  Type.String({ minLength: 1, maxLength: 16_384, description });
const storeFields = {
  endpoint: Type.String({
    maxLength: 256,
    pattern: '^https://[A-Za-z0-9.-]+(:[0-9]{1,5})?$',
    description: 'of an S3 server: https://HOST or https://HOST:PORT',
  }),
  bucket: Type.String({
    pattern: '^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$',
    description: 'the bucket',
  }),
  region: Type.String({
    pattern: '^[A-Za-z0-9-]{1,64}$',
    description: 'the region of the bucket',
  }),
  key_id: text('the access key id'),
} as const;

export const SetObjectStoreBody = Named(
  'SetObjectStore',
  Type.Object(
    {
      ...storeFields,
      key: secret('the secret key'),
      ca_pem: Type.Optional(
        secret('certificates that sign that of the endpoint, in PEM; default: those of the system'),
      ),
      move: Type.Optional(
        Type.Boolean({
          description:
            'whether another endpoint, bucket or region is set than before. It begins empty, so ' +
            'the window of each service begins again; default: false',
        }),
      ),
    },
    closed,
  ),
);
export type SetObjectStoreBody = Type.Static<typeof SetObjectStoreBody>;

export const KubernetesRegionSchema = Named(
  'KubernetesRegion',
  Type.Object({
    code: Type.String(),
    server: Type.String({ description: 'the API of its cluster' }),
    host: Type.String({
      description:
        'at which clients reach its services; with a domain, that: each has a name in it',
    }),
    domain: Type.Union([Type.String(), Type.Null()], {
      description: 'of the names of its services, ID.DOMAIN; null: they have ports of the host',
    }),
    first_port: port('the first port of its services'),
    last_port: port('the last port of its services'),
    storage_class: Type.Union([Type.String(), Type.Null()], {
      description: 'of volumes; null: the default class of the cluster',
    }),
    images,
    extensions,
    pooler_image: poolerImage,
    placement: Ref(PlacementSchema),
    service_placements: Type.Record(Type.String(), Ref(PlacementSchema), {
      description: 'the fields that services have in place of those of the region, by their ids',
    }),
    wal_storage_class: Type.Union([walClass, Type.Null()], {
      description: 'of the volume for WAL of new services; null: WAL is with the data',
    }),
    image_pull_registries: Type.Array(Type.String(), {
      description: 'the registries of images whose credentials are set; answers never have those',
    }),
    object_store: Type.Union(
      [
        Type.Object({
          ...storeFields,
          folder: Type.String({ description: 'in the bucket; a service has a folder in it' }),
          since: dateTime('what was archived before is elsewhere'),
        }),
        Type.Null(),
      ],
      { description: 'where WAL and base backups of its services are kept; null: nowhere' },
    ),
    created: dateTime('when it was added'),
  }),
);
export type KubernetesRegionDocument = Type.Static<typeof KubernetesRegionSchema>;
