import type { Action } from '@howdah/contract/actions';
import { EFFECTS } from '@howdah/contract/effects';
import { ENDS } from '@howdah/contract/permissions';
import { ENVIRONMENTS } from '@howdah/contract/types';
import { DRILL_KINDS, type DrillKind } from '@howdah/contract/values';
import { Option, type Command } from 'commander';
import {
  countOf,
  given,
  oneOf,
  verb,
  type Changing,
  type Confirming,
  type Waiting,
} from '../command.ts';
import { readSecret } from '../confirm.ts';
import { connect } from '../connection.ts';
import { Failure } from '../exit.ts';
import { ALLOW_LISTS, EXPORTERS, find, findService, findVpc, pathOf } from '../find.ts';
import { note } from '../output.ts';
import {
  change,
  changeFound,
  changeProtected,
  CHANGES,
  confirmService,
  PROTECTED_CHANGES,
  sizeOf,
  type Call,
  type Size,
} from './service-shared.ts';

export function addChanges(service: Command): void {
  addPlainChanges(service);
  addEnding(service);
  addAttachVpc(service);
  addAllowLists(service);
  addExporters(service);
  addResize(service);
  addHa(service);
  addDrill(service);
  addNames(service);
  addPassword(service);
}

function addPlainChanges(service: Command): void {
  /** Declares a change without further arguments. */
  const plain = (name: string, action: Action, does: string, call: Call): void => {
    verb(service, `${name} <service>`, {
      does,
      example: `howdah service ${name} orders`,
      takes: EFFECTS[action].length === 0 ? CHANGES : PROTECTED_CHANGES,
    }).action(async (wanted: string, options: Waiting & Confirming) =>
      changeFound(wanted, action, options, call),
    );
  };
  plain('start', 'start', 'Start a paused service.', (client, params) =>
    client.POST('/projects/{project_id}/services/{service_id}/start', { params }),
  );
  plain(
    'switchover',
    'switchover',
    'Make a standby the primary. No write is lost; sessions end, and new ones wait for a moment.',
    (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/switchover', { params }),
  );
  plain(
    'enable-pooler',
    'enablePooler',
    'Enable the connection pooler (PgBouncer) of a service, on a port of its own.',
    (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/enablePooler', { params }),
  );
  plain(
    'disable-pooler',
    'disablePooler',
    'Disable the connection pooler; its port stays reserved.',
    (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/disablePooler', { params }),
  );
  plain(
    'detach-vpc',
    'detachFromVPC',
    'Detach a service from its VPC: its public endpoint accepts all clients again.',
    (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/detachFromVPC', {
        params,
        body: {},
      }),
  );
}

/** Changes that end all sessions. */
function addEnding(service: Command): void {
  const ending = (name: 'stop' | 'restart', does: string, call: Call): void => {
    verb(service, `${name} <service>`, {
      does: `${does} Asks for the name of a PROD service.`,
      example: `howdah service ${name} orders`,
      takes: [...PROTECTED_CHANGES, 'yes'],
    }).action(async (wanted: string, options: Waiting & Confirming) =>
      changeFound(wanted, name, options, call),
    );
  };
  ending('stop', 'Stop a service; its data, endpoint and settings stay.', (client, params) =>
    client.POST('/projects/{project_id}/services/{service_id}/stop', { params }),
  );
  ending(
    'restart',
    'Restart a service, for a newer minor version of PostgreSQL; ' +
      'standbys first, then a switchover.',
    (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/restart', { params }),
  );
}

function addAttachVpc(service: Command): void {
  verb(service, 'attach-vpc <service> <vpc>', {
    does: 'Attach a service to a VPC: from then on only clients in the VPC can connect.',
    example: 'howdah service attach-vpc orders office',
    takes: PROTECTED_CHANGES,
  }).action(async (wanted: string, vpc: string, options: Waiting & Confirming) => {
    const connection = await connect(options);
    const found = await findService(connection, wanted);
    const body = { vpc_id: (await findVpc(connection, vpc)).id };
    await changeProtected(connection, found, 'attachToVPC', options, (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/attachToVPC', { params, body }),
    );
  });
}

function addAllowLists(service: Command): void {
  verb(service, 'attach-allow-list <service> <allow-list>', {
    does: 'Attach an allow list to a service: only clients of its networks can connect then.',
    example: 'howdah service attach-allow-list orders office',
    takes: PROTECTED_CHANGES,
  }).action(async (wanted: string, list: string, options: Waiting & Confirming) => {
    const connection = await connect(options);
    const found = await findService(connection, wanted);
    const body = { allow_list_id: (await find(connection, ALLOW_LISTS, list)).allow_list_id };
    await changeProtected(connection, found, 'attachToAllowList', options, (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/attachToAllowList', {
        params,
        body,
      }),
    );
  });

  verb(service, 'detach-allow-list <service>', {
    does: 'Detach the allow list from a service: its endpoint accepts all clients again.',
    example: 'howdah service detach-allow-list orders',
    takes: PROTECTED_CHANGES,
  }).action(async (wanted: string, options: Waiting & Confirming) => {
    const connection = await connect(options);
    const found = await findService(connection, wanted);
    const { name, allow_list_id: list } = found;
    if (list === undefined) throw new Failure(`${name} has no allow list`);
    await changeProtected(connection, found, 'detachFromAllowList', options, (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/detachFromAllowList', {
        params,
        body: { allow_list_id: list },
      }),
    );
  });
}

function addExporters(service: Command): void {
  verb(service, 'attach-exporter <service> <exporter>', {
    does: 'Attach an exporter to a service: it gets its samples from now on.',
    example: 'howdah service attach-exporter orders grafana',
    takes: ['output', 'dryRun'],
  }).action(async (wanted: string, exporter: string, options: Changing) => {
    const connection = await connect(options);
    const { service_id: id } = await findService(connection, wanted);
    const body = { exporter_id: (await find(connection, EXPORTERS, exporter)).exporter_id };
    await change(connection, id, { ...options, wait: false }, (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/attachToExporter', {
        params,
        body,
      }),
    );
  });

  verb(service, 'detach-exporter <service>', {
    does: 'Detach the exporter from a service: it gets no more samples.',
    example: 'howdah service detach-exporter orders',
    takes: ['output', 'dryRun'],
  }).action(async (wanted: string, options: Changing) => {
    const connection = await connect(options);
    const {
      service_id: id,
      name,
      metric_exporter_id: exporter,
    } = await findService(connection, wanted);
    if (exporter === undefined) throw new Failure(`${name} has no exporter`);
    await change(connection, id, { ...options, wait: false }, (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/detachFromExporter', {
        params,
        body: { exporter_id: exporter },
      }),
    );
  });
}

function addResize(service: Command): void {
  verb(service, 'resize <service>', {
    does: 'Change the size of a service.',
    example: 'howdah service resize orders --cpu-millis 2000',
    takes: [...PROTECTED_CHANGES, 'force'],
  })
    .option('--cpu-millis <number>', 'thousandths of a core')
    .option('--memory-gbs <number>', 'gigabytes')
    .option('--storage-gb <number>', 'gigabytes of disk; alone it needs no restart')
    .option('--cpu-bound', 'no more CPU than its size; on Kubernetes a change needs a restart')
    .option('--no-cpu-bound', 'idle processors beyond its size')
    .action(async (wanted: string, options: Waiting & Confirming & Size) =>
      changeFound(wanted, 'resize', options, (client, params) =>
        client.POST('/projects/{project_id}/services/{service_id}/resize', {
          params,
          body: sizeOf(options),
        }),
      ),
    );
}

type Counts = { replicas?: string; sync?: string };

function addHa(service: Command): void {
  verb(service, 'ha <service>', {
    does: 'Set the number of standbys, and how many of them are synchronous.',
    example: 'howdah service ha orders --replicas 1 --sync 1',
    takes: PROTECTED_CHANGES,
  })
    .option('--replicas <number>', 'number of standbys, 0 to 2')
    .option('--sync <number>', 'number of synchronous standbys, 0 to the number of standbys')
    .action(async (wanted: string, options: Waiting & Confirming & Counts) => {
      const { replicas, sync } = options;
      const body = {
        ...given(
          'replica_count',
          replicas === undefined ? undefined : countOf('--replicas', replicas),
        ),
        ...given('sync_replica_count', sync === undefined ? undefined : countOf('--sync', sync)),
      };
      await changeFound(wanted, 'setHA', options, (client, params) =>
        client.POST('/projects/{project_id}/services/{service_id}/setHA', { params, body }),
      );
    });
}

function addDrill(service: Command): void {
  verb(service, 'drill <service>', {
    does:
      'Rehearse a switchover, or a failover by killing the primary, ' +
      'and report how long writes were not possible.',
    example: 'howdah service drill orders --kind failover',
    takes: PROTECTED_CHANGES,
  })
    .addOption(
      new Option('--kind <kind>', 'what to rehearse').choices(DRILL_KINDS).default('switchover'),
    )
    .action(async (wanted: string, options: Waiting & Confirming & { kind: DrillKind }) => {
      const body = { kind: options.kind };
      await changeFound(wanted, 'drill', options, (client, params) =>
        client.POST('/projects/{project_id}/services/{service_id}/drill', { params, body }),
      );
    });
}

function addNames(service: Command): void {
  verb(service, 'rename <service> <new-name>', {
    does: 'Rename a service.',
    example: 'howdah service rename orders shop',
    takes: ['output', 'dryRun'],
  }).action(async (wanted: string, name: string, options: Changing) =>
    changeFound(wanted, 'rename', { ...options, wait: false }, (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/rename', {
        params,
        body: { name },
      }),
    ),
  );

  verb(service, 'set-environment <service> <environment>', {
    does: `Set the environment of a service: DEV or PROD. PROD is harder to ${ENDS}.`,
    example: 'howdah service set-environment orders PROD',
    takes: ['output', 'dryRun', 'confirm'],
  }).action(async (wanted: string, tag: string, options: Changing & Confirming) => {
    const body = { environment: oneOf('environment', ENVIRONMENTS, tag) };
    const asked = { ...options, wait: false };
    await changeFound(wanted, 'setEnvironment', asked, (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/setEnvironment', { params, body }),
    );
  });
}

function addPassword(service: Command): void {
  verb(service, 'set-password <service>', {
    does:
      'Change the password of tsdbadmin. It is typed at a prompt, ' +
      'or is the first line of standard input. Open sessions of tsdbadmin end, ' +
      'and poolers start again.',
    example: 'openssl rand -hex 16 | howdah service set-password orders',
    takes: ['dryRun', 'confirm'],
  })
    .option('--keep-sessions', 'let open sessions stay: each of them can set another password')
    .action(async (wanted: string, options: Confirming & { keepSessions?: true }) => {
      const connection = await connect(options);
      const found = await findService(connection, wanted);
      const { service_id: id, name } = found;
      const confirmed = await confirmService(connection, found, 'updatePassword', options);
      const password = await readSecret(`new password of ${name}: `);
      const params = { ...pathOf(connection, id), query: given('confirm', confirmed) };
      await connection.client.POST('/projects/{project_id}/services/{service_id}/updatePassword', {
        params,
        body: { password, ...given('keep_sessions', options.keepSessions) },
      });
      note(
        options.keepSessions === true
          ? `${name} has the new password; open sessions stay connected`
          : `${name} has the new password; older sessions of tsdbadmin are ended`,
      );
    });
}
