/**
 * The resource `clusters.postgresql.cnpg.io`, with the fields that the engine uses, by hand: an
 * unknown or misspelled field is refused, as it would be by the definition of CloudNativePG.
 * The rules are some of docs/cloudnativepg.md, fact 10, which CloudNativePG has in its webhook.
 */

export type Schema = Readonly<Record<string, unknown>>;

export const text: Schema = { type: 'string' };
export const number: Schema = { type: 'integer' };
export const yes: Schema = { type: 'boolean' };
const texts: Schema = { type: 'array', items: text };
export const textMap: Schema = { type: 'object', additionalProperties: text };
export const quantities: Schema = {
  type: 'object',
  additionalProperties: { anyOf: [number, text], 'x-kubernetes-int-or-string': true },
};
/** Kubernetes itself defines its fields. */
export const anything: Schema = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
export const object = (
  properties: Readonly<Record<string, Schema>>,
  more: Schema = {},
): Schema => ({
  type: 'object',
  properties,
  ...more,
});
const list = (items: Schema): Schema => ({ type: 'array', items });

const storage = object(
  {
    size: { type: 'string', maxLength: 20 },
    storageClass: text,
    resizeInUseVolumes: yes,
    pvcTemplate: object({ accessModes: list(text) }),
  },
  {
    'x-kubernetes-validations': [
      {
        rule: 'quantity(self.size).compareTo(quantity(oldSelf.size)) >= 0',
        message: 'a volume cannot become smaller',
      },
    ],
  },
);

const application = { database: text, owner: text, secret: object({ name: text }) };
export const key = object({ name: text, key: text });

const plugin = object(
  { name: text, enabled: yes, isWALArchiver: yes, parameters: textMap },
  { required: ['name'] },
);

const spec = object(
  {
    description: text,
    instances: { type: 'integer', minimum: 1 },
    imageName: text,
    inheritedMetadata: object({ labels: textMap, annotations: textMap }),
    storage,
    walStorage: storage,
    resources: object({ requests: quantities, limits: quantities }),
    postgresql: object({
      parameters: textMap,
      shared_preload_libraries: texts,
      pg_hba: texts,
      synchronous: object({
        method: text,
        number,
        dataDurability: text,
        failoverQuorum: yes,
      }),
    }),
    bootstrap: object({
      pg_basebackup: object({ ...application, source: text }),
      recovery: object({
        ...application,
        volumeSnapshots: object({ storage: object({ apiGroup: text, kind: text, name: text }) }),
        source: text,
        recoveryTarget: object({ targetImmediate: yes, targetTime: text }),
      }),
      initdb: object({
        ...application,
        dataChecksums: yes,
        encoding: text,
        localeCollate: text,
        localeCType: text,
        postInitSQL: texts,
        postInitTemplateSQL: texts,
        postInitApplicationSQL: texts,
      }),
    }),
    externalClusters: list(
      object(
        {
          name: text,
          connectionParameters: textMap,
          sslKey: key,
          sslCert: key,
          password: key,
          sslRootCert: key,
          plugin,
        },
        { required: ['name'] },
      ),
    ),
    plugins: list(plugin),
    backup: object({
      target: text,
      volumeSnapshot: object({
        className: text,
        online: yes,
        onlineConfiguration: object({ immediateCheckpoint: yes, waitForArchive: yes }),
        snapshotOwnerReference: { type: 'string', enum: ['none', 'backup', 'cluster'] },
      }),
    }),
    replica: object(
      { enabled: yes, source: text },
      {
        required: ['source'],
        // A set that is promoted never follows again: docs/cloudnativepg.md, fact 32.
        'x-kubernetes-validations': [
          { rule: '!has(self.enabled) || self.enabled', message: 'sets are never promoted' },
        ],
      },
    ),
    enableSuperuserAccess: yes,
    enablePDB: yes,
    certificates: object({ serverCASecret: text, serverTLSSecret: text }),
    managed: object({
      roles: list(
        object(
          {
            name: text,
            ensure: { type: 'string', enum: ['present', 'absent'] },
            login: yes,
            bypassrls: yes,
            connectionLimit: number,
            inRoles: texts,
            passwordSecret: object({ name: text }, { required: ['name'] }),
          },
          { required: ['name'] },
        ),
      ),
      services: object({
        disabledDefaultServices: texts,
        additional: list(
          object({
            selectorType: text,
            updateStrategy: text,
            serviceTemplate: object({ metadata: anything, spec: anything }),
          }),
        ),
      }),
    }),
    affinity: object({
      enablePodAntiAffinity: yes,
      podAntiAffinityType: text,
      nodeSelector: textMap,
      tolerations: list(
        object({ key: text, operator: text, value: text, effect: text }, { required: ['key'] }),
      ),
    }),
    topologySpreadConstraints: list(
      object(
        { topologyKey: text, maxSkew: number, whenUnsatisfiable: text, labelSelector: anything },
        { required: ['topologyKey', 'maxSkew', 'whenUnsatisfiable'] },
      ),
    ),
    priorityClassName: text,
    imagePullSecrets: list(object({ name: text }, { required: ['name'] })),
    primaryUpdateStrategy: text,
    primaryUpdateMethod: text,
    startDelay: number,
    stopDelay: number,
    smartShutdownTimeout: number,
    switchoverDelay: number,
    failoverDelay: number,
    probes: object({
      startup: object({ periodSeconds: number }),
      readiness: object({
        type: { type: 'string', enum: ['pg_isready', 'query', 'streaming'] },
        maximumLag: text,
        periodSeconds: number,
        failureThreshold: number,
      }),
    }),
  },
  {
    required: ['instances', 'storage'],
    'x-kubernetes-validations': [
      {
        rule:
          '!has(self.postgresql) || !has(self.postgresql.synchronous) || ' +
          'self.postgresql.synchronous.number < self.instances',
        message: 'the number of synchronous standbys must be less than that of the instances',
      },
      {
        // validateWalStorageChange of cluster_webhook.go of CloudNativePG.
        rule: '!has(oldSelf.walStorage) || has(self.walStorage)',
        message: 'walStorage cannot be disabled once configured',
      },
      {
        // docs/cloudnativepg.md, fact 44.
        rule:
          '!has(self.imageName) || !has(oldSelf.imageName) || ' +
          'self.imageName == oldSelf.imageName || ' +
          '!has(self.primaryUpdateMethod) || self.primaryUpdateMethod != "switchover" || ' +
          '!has(self.postgresql.parameters) || !has(oldSelf.postgresql.parameters) || ' +
          'self.postgresql.parameters == oldSelf.postgresql.parameters',
        message: "Can't change image name and configuration at the same time",
      },
      {
        // validateReplicaMode of cluster_webhook.go of CloudNativePG.
        rule:
          '!has(self.replica) || (has(self.externalClusters) && ' +
          '(has(self.bootstrap.pg_basebackup) || has(self.bootstrap.recovery)))',
        message: 'a replica cluster needs a source, and a bootstrap that copies',
      },
    ],
  },
);

export const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
export const DEFINITION_NAME = 'clusters.postgresql.cnpg.io';

export const DEFINITION = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: DEFINITION_NAME },
  spec: {
    group: 'postgresql.cnpg.io',
    scope: 'Namespaced',
    names: { kind: 'Cluster', listKind: 'ClusterList', plural: 'clusters', singular: 'cluster' },
    versions: [
      {
        name: 'v1',
        served: true,
        storage: true,
        subresources: { status: {} },
        schema: {
          openAPIV3Schema: object(
            {
              apiVersion: text,
              kind: text,
              metadata: { type: 'object' },
              spec,
              status: anything,
            },
            {
              required: ['metadata', 'spec'],
              'x-kubernetes-validations': [
                {
                  rule: "self.metadata.name.matches('^[a-z][a-z0-9-]*$')",
                  message: 'the name must begin with a letter and have no dot',
                },
                { rule: 'self.metadata.name.size() <= 50', message: 'the name is too long' },
              ],
            },
          ),
        },
      },
    ],
  },
};

export const BACKUP_DEFINITION_NAME = 'backups.postgresql.cnpg.io';
export const BACKUP_DEFINITION = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: BACKUP_DEFINITION_NAME },
  spec: {
    group: 'postgresql.cnpg.io',
    scope: 'Namespaced',
    names: { kind: 'Backup', listKind: 'BackupList', plural: 'backups', singular: 'backup' },
    versions: [
      {
        name: 'v1',
        served: true,
        storage: true,
        subresources: { status: {} },
        schema: {
          openAPIV3Schema: object(
            {
              apiVersion: text,
              kind: text,
              metadata: { type: 'object' },
              spec: object(
                {
                  cluster: object({ name: text }, { required: ['name'] }),
                  method: text,
                  target: text,
                  pluginConfiguration: object({ name: text }, { required: ['name'] }),
                },
                { required: ['cluster'] },
              ),
              status: anything,
            },
            { required: ['metadata', 'spec'] },
          ),
        },
      },
    ],
  },
};

export const WEBHOOKS = '/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations';
export const WEBHOOK_NAME = 'cnpg-validating-webhook-configuration';

/**
 * The webhook of an operator that does not run: docs/cloudnativepg.md, fact 4. The double has none
 * while it runs.
 */
export const UNANSWERED_WEBHOOK = {
  apiVersion: 'admissionregistration.k8s.io/v1',
  kind: 'ValidatingWebhookConfiguration',
  metadata: { name: WEBHOOK_NAME },
  webhooks: [
    {
      name: 'vcluster.cnpg.io',
      // Nothing listens there, on the machine of the API server.
      clientConfig: { url: 'https://127.0.0.1:9/validate-postgresql-cnpg-io-v1-cluster' },
      failurePolicy: 'Fail',
      sideEffects: 'None',
      admissionReviewVersions: ['v1'],
      rules: [
        {
          apiGroups: ['postgresql.cnpg.io'],
          apiVersions: ['v1'],
          operations: ['CREATE', 'UPDATE'],
          resources: ['clusters'],
        },
      ],
    },
  ],
};
