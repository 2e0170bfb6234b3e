/** Defects of the control plane and its clients: keys, secrets, networks, events, Kubernetes. */
import type { Plant } from './plant.ts';

const SERVER = 'packages/server/src';
const KUBERNETES = `${SERVER}/engine/kubernetes`;

export const CONTROL_PLANTS: readonly Plant[] = [
  {
    name: 'other-project-seen',
    breaks: ['P7'],
    effect: 'a key reads and changes services of another project by their ids',
    edits: [
      {
        file: `${SERVER}/api/auth.ts`,
        from: '    service.project_id !== parametersOf(params).project_id ||\n',
        to: '',
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: `${SERVER}/api/auth.test.ts` }],
    },
  },
  {
    name: 'prod-unprotected',
    breaks: ['P12', 'keys and roles'],
    effect: 'a developer stops PROD services',
    edits: [
      {
        file: 'packages/contract/src/permissions.ts',
        from: "end: { changes: true, DEV: WRITERS, PROD: ADMINS, forkOnly: 'ownForks'",
        to: "end: { changes: true, DEV: WRITERS, PROD: WRITERS, forkOnly: 'ownForks'",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: 'packages/contract/src/permissions.test.ts' }] },
  },
  {
    name: 'replica-set-unprotected',
    breaks: ['console', 'keys and roles'],
    effect: 'a DEV service takes its PROD read replica set along when it is stopped',
    edits: [
      {
        file: 'packages/contract/src/permissions.ts',
        from: "metadata.environment === 'PROD') ? 'PROD' : environment",
        to: "metadata.environment === 'PROD') ? environment : 'DEV'",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: 'packages/console/src/status.test.ts' }] },
  },
  {
    name: 'dangerous-extension',
    breaks: ['P12', 'extensions'],
    effect: 'a tenant gets an extension that runs programs on the machine',
    edits: [
      {
        file: `${SERVER}/domain/postgres/extension-rules.ts`,
        from: 'return superuser\n    ? refuse(',
        to: 'return superuser && RULES[name] !== undefined\n    ? refuse(',
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: `${SERVER}/domain/postgres/extension-rules.test.ts` }],
    },
  },
  {
    name: 'pooler-admits-our-roles',
    breaks: ['P12', 'pooler'],
    effect: 'clients log in through the pooler as roles of the control plane',
    edits: [
      {
        file: `${SERVER}/engine/pooler/conf.ts`,
        from: "${ours.join(',')}  ${all}  reject",
        to: "${ours.join(',')}  ${all}  scram-sha-256",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/engine/pooler/conf.test.ts` }] },
  },
  {
    name: 'password-in-log',
    breaks: ['P8', 'masking of secrets'],
    effect: 'the control log contains the keys of callers and passwords',
    edits: [
      {
        file: `${SERVER}/lib/log.ts`,
        from: "redact: ['req.headers.authorization', '*.first_verifier', '*.password']",
        to: "redact: ['authorization', 'first_verifier', 'password']",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/lib/log.test.ts` }] },
  },
  {
    name: 'answers-not-sealed',
    breaks: ['P8', 'idempotency keys'],
    effect: 'a kept answer, with its password, can be read with the Idempotency-Key alone',
    edits: [
      {
        file: `${SERVER}/lib/secret.ts`,
        from: '`${secretKey}\\0${idempotencyKey}`',
        to: '`${idempotencyKey}`',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/lib/secret.test.ts` }] },
  },
  {
    name: 'same-answer-for-another-call',
    breaks: ['P1', 'idempotency keys'],
    effect: 'a call with the Idempotency-Key of another call gets the answer of that one',
    edits: [
      {
        file: `${SERVER}/lib/secret.ts`,
        from: 'update(`call\\0${text}`)',
        to: "update(`call\\0${text.split(' ')[0]}`)",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/lib/secret.test.ts` }] },
  },
  {
    name: 'answer-not-kept',
    breaks: ['P1', 'idempotency keys'],
    effect: 'a call that is repeated with its Idempotency-Key gets no answer',
    edits: [
      {
        file: `${SERVER}/services/change.ts`,
        from: 'if (once !== null) await keepAnswer(tx, once',
        to: 'if (once !== null && caller.dryRun) await keepAnswer(tx, once',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: 'packages/server/test/once.test.ts' }] },
  },
  {
    name: 'guessing-unlimited',
    breaks: ['P9'],
    effect: 'an attacker with a network of IPv6 guesses keys without a limit',
    edits: [
      {
        file: `${SERVER}/api/errors.ts`,
        from: '.slice(0, 4).join',
        to: '.join',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/api/errors.test.ts` }] },
  },
  {
    name: 'reads-of-one-service',
    breaks: ['P9'],
    effect: 'one service takes all turns of expensive reads',
    edits: [
      {
        file: `${SERVER}/services/read-limit.ts`,
        from: 'all < total && (running.get(id) ?? 0) < perId',
        to: 'all < total && (running.get(id) ?? 0) <= total',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/services/read-limit.test.ts` }] },
  },
  {
    name: 'audit-grows-by-refusals',
    breaks: ['P13', 'audit log'],
    effect: 'each refused call of a key is a row of the audit log',
    edits: [
      {
        file: `${SERVER}/api/audit-log.ts`,
        from: 'code == null ? service_id : null',
        to: 'code == null ? null : service_id',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/api/audit-log.test.ts` }] },
  },
  {
    name: 'events-missed',
    breaks: ['events'],
    effect: 'a stream misses an event that happens while it reads',
    edits: [
      {
        file: `${SERVER}/events/hub.ts`,
        from: '    hub.reads.clear();\n',
        to: '',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/events/hub.test.ts` }] },
  },
  {
    name: 'webhook-to-metadata-server',
    breaks: ['webhooks', 'P12'],
    effect: 'a webhook reaches addresses of the private network through IPv6',
    edits: [
      {
        file: `${SERVER}/events/outgoing-request.ts`,
        from: '(internetIpv6.check(address, kind) && !ISATAP.test(address))',
        to: 'internetIpv6.check(address, kind)',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/events/outgoing-request.test.ts` }] },
  },
  {
    name: 'alert-flood',
    breaks: ['alerts'],
    effect: 'a condition that comes and goes sends two messages each time',
    edits: [
      {
        file: `${SERVER}/domain/alerts/incidents.ts`,
        from: 'one.cleared !== null && isOver(one.cleared, STEADY_MS),',
        to: 'one.cleared !== null,',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/domain/alerts/alerts.test.ts` }] },
  },
  {
    name: 'mail-to-private-network',
    breaks: ['alerts', 'P12'],
    effect: 'a mail server may be an address of this machine',
    edits: [
      {
        file: `${SERVER}/events/outgoing-request.ts`,
        from: 'if (literal !== null && !mayReach(literal, allowed)) throw refusal(host, literal);',
        to: '',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/export/mail.test.ts` }] },
  },
  {
    name: 'exporter-labels-unsorted',
    breaks: ['exporters'],
    effect: 'receivers of remote write refuse the samples',
    edits: [
      {
        file: `${SERVER}/domain/exporter/figures.ts`,
        from: "    ['node', String(sample.node)],\n    ['project_id', sample.projectId],\n",
        to: "    ['project_id', sample.projectId],\n    ['node', String(sample.node)],\n",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/domain/exporter/figures.test.ts` }] },
  },
  {
    name: 'statement-writes',
    breaks: ['statements'],
    effect: 'a statement that may only read begins a transaction that can write',
    edits: [
      {
        file: `${SERVER}/engine/statements/run.ts`,
        from: "client.query('begin transaction read only')",
        to: "client.query('begin transaction isolation level repeatable read')",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/engine/statements/run.test.ts` }] },
  },
  {
    name: 'session-may-write',
    breaks: ['statements'],
    effect: 'a statement that leaves its transaction can begin one that writes',
    edits: [
      {
        file: `${SERVER}/engine/statements/session.ts`,
        from: "    'default_transaction_read_only=on',\n",
        to: '',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/engine/statements/session.test.ts` }] },
  },
  {
    name: 'password-not-prepared',
    breaks: ['passwords'],
    effect: 'nobody can log in with a password that has a character outside of ASCII',
    edits: [
      {
        file: `${SERVER}/lib/scram.ts`,
        from: 'await prepared(password), salt',
        to: 'password, salt',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/lib/scram.test.ts` }] },
  },
  {
    name: 'retagged-by-a-developer',
    breaks: ['keys and roles'],
    effect: 'a developer sets the tag of a PROD service to DEV, and deletes it',
    edits: [
      {
        file: `${SERVER}/services/service-rules.ts`,
        from: '    refuseByRole(caller, action, service.environment);\n',
        to: '',
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: 'packages/server/test/keys.test.ts', name: 'retagged by admins' }],
    },
  },
  {
    name: 'prod-without-its-name',
    breaks: ['keys and roles', 'switchover'],
    effect: 'a switchover of a PROD service asks nobody for its name',
    edits: [
      {
        file: 'packages/contract/src/effects.ts',
        from: "switchover: ['endsSessions']",
        to: 'switchover: []',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: 'packages/contract/src/effects.test.ts' }] },
  },
  {
    name: 'key-of-another-certificate',
    breaks: ['TLS'],
    effect: 'after a crash between two files a server has a certificate without its key',
    edits: [
      {
        file: `${SERVER}/lib/tls.ts`,
        from: '.checkPrivateKey(createPrivateKey(keyPem));',
        to: ".subject !== '' && createPrivateKey(keyPem).type === 'private';",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/lib/tls.test.ts` }] },
  },
  {
    name: 'open-proxy',
    breaks: ['TLS', 'P7'],
    effect: 'the TLS gateway connects a client to whatever a name in the DNS leads to',
    edits: [
      {
        file: `${SERVER}/tls-gateway/routes.ts`,
        from: 'return name === service ? (project ?? null) : null;',
        to: "return name === undefined || service === '' ? null : (project ?? null);",
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/tls-gateway/routes.test.ts` }] },
  },
  {
    name: 'any-program-for-credentials',
    breaks: ['Kubernetes', 'keys and roles'],
    effect: 'an admin key of the operator project runs any program as the control plane',
    edits: [
      {
        file: `${KUBERNETES}/api/kubeconfig.ts`,
        from: '  if (found !== undefined) return found;\n',
        to: '  return found ?? command;\n',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${KUBERNETES}/api/kubeconfig.test.ts` }] },
  },
  {
    name: 'expired-tokens-stay',
    breaks: ['Kubernetes'],
    effect: 'a region of a managed cluster does not answer once its first token has expired',
    edits: [
      {
        file: `${KUBERNETES}/api/credential-plugin.ts`,
        from: 'current !== null && now < current.expiresMs',
        to: 'current !== null',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${KUBERNETES}/api/credential-plugin.test.ts` }] },
  },
  {
    name: 'clear-text-on-kubernetes',
    breaks: ['Kubernetes', 'allow lists'],
    effect: 'clients outside of an allow list reach a service on Kubernetes',
    edits: [
      {
        file: `${KUBERNETES}/network/rules.ts`,
        from: "    'host all all all reject',\n",
        to: '',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${KUBERNETES}/network/rules.test.ts` }] },
  },
  {
    name: 'empty-cluster-in-place-of-lost',
    breaks: ['Kubernetes', 'create'],
    effect: 'a service whose Cluster was deleted is made again, empty',
    edits: [
      {
        file: `${KUBERNETES}/cluster/decide.ts`,
        from: 'if (spec.provisioned && spec.recovery === null)',
        to: 'if (spec.provisioned && spec.recovery === null && parent !== null)',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${KUBERNETES}/cluster/decide.test.ts` }] },
  },
  {
    name: 'recovery-without-its-archive',
    breaks: ['Kubernetes', 'backups'],
    effect: 'a recovered service on Kubernetes archives nothing, since its folder has files',
    edits: [
      {
        file: `${KUBERNETES}/cluster/manifest.ts`,
        from: '...(input.keepsArchive\n',
        to: '...(input.keepsArchive && input.parent === null\n',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${KUBERNETES}/cluster/decide-recovery.test.ts` }] },
  },
  {
    name: 'region-away-unseen',
    breaks: ['Kubernetes', 'stop and start'],
    effect: 'a change waits for an operator that is away, and nothing says so',
    edits: [
      {
        file: `${KUBERNETES}/region/answers.ts`,
        from: 'failures = why === null ? 0 : failures + 1;',
        to: 'failures = why === null ? 0 : 1;',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${KUBERNETES}/region/answers.test.ts` }] },
  },
  {
    name: 'pods-anywhere',
    breaks: ['Kubernetes', 'create'],
    effect: 'servers run on nodes that the region does not name',
    edits: [
      {
        file: `${KUBERNETES}/cluster/manifest.ts`,
        from: '      ...nodesOf(input.placement),\n',
        to: '',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${KUBERNETES}/region/placement.test.ts` }] },
  },
  {
    name: 'move-ended-before-its-restart',
    breaks: ['Kubernetes', 'moves'],
    effect: 'a service that has moved to Kubernetes is UNSTABLE while it is restarted',
    edits: [
      {
        file: `${SERVER}/reconcile/move.ts`,
        from: 'if (awaitsRestart && !isRestartLate(move, Date.now()))',
        to: 'if (awaitsRestart && isRestartLate(move, Date.now()))',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${SERVER}/reconcile/move.test.ts` }] },
  },
  {
    name: 'sync-before-standby',
    breaks: ['Kubernetes', 'P3'],
    effect: 'all writes wait for a standby that does not exist yet',
    edits: [
      {
        file: `${KUBERNETES}/cluster/cluster-change.ts`,
        from: 'sync: Math.min(before.sync, desired.sync)',
        to: 'sync: Math.max(before.sync, desired.sync)',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${KUBERNETES}/cluster/decide.test.ts` }] },
  },
  {
    name: 'window-pruned',
    breaks: ['Kubernetes', 'backups'],
    effect: 'the snapshot that the beginning of the window needs is removed',
    edits: [
      {
        file: `${KUBERNETES}/backup/backups.ts`,
        from: 'taken.slice(base + 1)',
        to: 'taken.slice(base)',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: `${KUBERNETES}/backup/backups.test.ts` }] },
  },
  {
    name: 'confirm-any-name',
    breaks: ['MCP'],
    effect: 'an agent deletes a service without its exact name',
    edits: [
      {
        file: 'packages/mcp/src/tool.ts',
        from: 'if (echo === found.name) return found;',
        to: 'if (echo.trim() !== "") return found;'.replaceAll('"', "'"),
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: 'packages/mcp/src/tool.test.ts' }] },
  },
  {
    name: 'write-in-any-fork',
    breaks: ['MCP'],
    effect: 'an agent writes in a fork that another key has made',
    edits: [
      {
        file: 'packages/mcp/src/own-forks.ts',
        from: 'if (maker !== publicKey)',
        to: 'if (maker === undefined)',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: 'packages/mcp/src/own-forks.test.ts' }] },
  },
  {
    name: 'index-missing',
    breaks: ['P10'],
    effect: 'a list of operations reads those of all projects',
    edits: [
      {
        file: 'packages/server/migrations/0001_init.sql',
        from: 'create index operations_of_project on operations (project_id, created desc, id);\n',
        to: '',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: 'packages/server/test/fleet.test.ts' }] },
  },
  {
    name: 'size-without-room',
    breaks: ['create', 'resize'],
    effect: 'a size that is larger than the machine is accepted',
    edits: [
      {
        file: 'packages/server/src/services/room.ts',
        from: 'const why = force ? null : whyNoRoom(',
        to: 'const why = force || size !== null ? null : whyNoRoom(',
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: 'packages/server/test/capacity.test.ts', name: 'is refused by each call' }],
    },
  },
  {
    name: 'unannounced-purge',
    breaks: ['undelete', 'events'],
    effect: 'no event says that a deleted service may be purged early',
    edits: [
      {
        file: 'packages/server/src/reconcile/storage.ts',
        from: 'if (disk.usedPercent >= DISK_TIGHT_PERCENT)',
        to: 'if (disk.usedPercent >= 10 * DISK_TIGHT_PERCENT)',
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: 'packages/server/test/restore-risk.test.ts' }],
    },
  },
  {
    name: 'purge-without-entry',
    breaks: ['undelete', 'audit log'],
    effect: 'an early purge is not in the audit log',
    edits: [
      {
        file: 'packages/server/src/reconcile/storage.ts',
        from: "await recordRemoval(tx, id, 'purgeOnFullDisk', removal, HOWDAH);",
        to: "void [recordRemoval, id, 'purgeOnFullDisk', removal, HOWDAH];",
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: 'packages/server/test/restore-risk.test.ts' }],
    },
  },
  {
    name: 'unsaid-loss',
    breaks: ['fork', 'switchover'],
    effect: 'an operation does not say what it leaves behind',
    edits: [
      {
        file: 'packages/server/src/services/not-carried.ts',
        from: 'if (lines.length > 0) await',
        to: 'if (lines.length > 99) await',
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [
        { file: 'packages/server/test/not-carried.test.ts', name: 'running service|switchover' },
      ],
    },
  },
  {
    name: 'home-made-again',
    breaks: ['stop and start'],
    effect: 'a metadata database whose directory is gone is made again, and is empty',
    edits: [
      {
        file: `${SERVER}/metadata-database.ts`,
        from: '      if (!(await exists(root))) throw new Error(`${root} is missing`);\n',
        to: '',
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: 'packages/server/test/lost-home.test.ts', name: 'not made again' }],
    },
  },
  {
    name: 'name-twice',
    breaks: ['create', 'fork'],
    effect: 'of simultaneous calls for a unique name, several make a service',
    edits: [
      {
        file: `${SERVER}/store/services.ts`,
        from: '  await sql`select ${lock}`.execute(tx);\n',
        to: '  void lock;\n',
      },
    ],
    caughtBy: {
      gate: 'A',
      tests: [{ file: 'packages/server/test/service-names.test.ts', name: 'simultaneous calls' }],
    },
  },
];
