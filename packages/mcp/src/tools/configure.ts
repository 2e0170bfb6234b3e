/** Tools for the properties of a service: replicas, pooler, password, lifetime. */
import { Type } from 'typebox';
import { body as bodyOf, connectionString, findService, pathOf, type Cloud } from '../cloud.ts';
import { makePassword } from '../passwords.ts';
import { Problem } from '../problem.ts';
import {
  addTool,
  askedAs,
  changing,
  closed,
  confirmedForProd,
  confirmOfProd,
  service,
  wait,
  type ToolServer,
} from '../tool.ts';
import { adjust, change, SERVICE } from './change.ts';

const MAX_REPLICAS = 2;

export function addConfigureTools(server: ToolServer, cloud: Cloud): void {
  addSetHa(server, cloud);
  addSetPooler(server, cloud);
  addResetPassword(server, cloud);
  addSetExpiry(server, cloud);
  addSetAutoSuspend(server, cloud);
}

function addSetExpiry(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'set_expiry',
    {
      title: 'Set when a service is deleted by itself',
      description:
        'Gives a service so many seconds from now, or takes its end away. A PROD service never ' +
        'has one. A deleted service can be restored for a while.',
      kind: 'change',
      input: Type.Object(
        {
          service,
          ttl_seconds: Type.Union([Type.Integer({ minimum: 1 }), Type.Null()], {
            description: 'null: it is not deleted by itself',
          }),
          ...changing,
        },
        closed,
      ),
    },
    async (args, signal) => {
      const found = await findService(cloud, args.service);
      const { ttl_seconds: ttl } = args;
      const { data } = await cloud.client.POST(`${SERVICE}/setExpiry`, {
        params: { path: pathOf(found), ...askedAs(args) },
        body: ttl === null ? { expires_at: null } : { ttl_seconds: ttl },
        signal,
      });
      const { service_id, name, expires_at: end = null } = bodyOf({ data });
      const summary = end === null ? `${name} stays.` : `${name} is deleted at ${end}.`;
      return { summary, data: { service_id, expires_at: end } };
    },
  );
}

function addSetAutoSuspend(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'set_auto_suspend',
    {
      title: 'Set when a service falls asleep',
      description:
        'Has a service fall asleep when nobody has used it for so many seconds: its server ' +
        'stops, and the next client has it started in a moment. Setting it first, or taking it ' +
        'away, ends sessions. PROD needs confirm.',
      kind: 'change',
      input: Type.Object(
        {
          service,
          auto_suspend_seconds: Type.Union([Type.Integer({ minimum: 5 }), Type.Null()], {
            description: 'null: it never falls asleep',
          }),
          confirm: confirmOfProd,
          ...wait,
          ...changing,
        },
        closed,
      ),
    },
    async (args, signal) => {
      const found = await findService(cloud, args.service);
      confirmedForProd('setAutoSuspend', found, args);
      const target = found.status === 'PAUSED' ? 'PAUSED' : 'READY';
      const body = { auto_suspend_seconds: args.auto_suspend_seconds };
      return change(cloud, found, args, signal, target, (asked) =>
        cloud.client.POST(`${SERVICE}/setAutoSuspend`, { ...asked, body }),
      );
    },
  );
}

function addSetHa(server: ToolServer, cloud: Cloud): void {
  const count = (description: string) =>
    Type.Optional(Type.Integer({ minimum: 0, maximum: MAX_REPLICAS, description }));
  addTool(
    server,
    'set_ha',
    {
      title: 'Set the replicas of a service',
      description:
        'Gives a service up to two replicas, of which one takes over when the primary fails. ' +
        'Each costs memory, cores and disk as the service does. The first one, and removing ' +
        'the last one, ends sessions. PROD needs confirm.',
      kind: 'change',
      input: Type.Object(
        {
          service,
          replica_count: count('replicas; default: as they are'),
          sync_replica_count: count(
            'how many of them have every write before it is acknowledged; default: as it is',
          ),
          confirm: confirmOfProd,
          ...wait,
          ...changing,
        },
        closed,
      ),
    },
    async (args, signal) => {
      const { replica_count, sync_replica_count } = args;
      const found = await findService(cloud, args.service);
      const body = {
        ...(replica_count === undefined ? {} : { replica_count }),
        ...(sync_replica_count === undefined ? {} : { sync_replica_count }),
      };
      if (Object.keys(body).length === 0)
        throw new Problem('replica_count, sync_replica_count: both missing', 'send one of them');
      confirmedForProd('setHA', found, args);
      const target = found.status === 'PAUSED' ? 'PAUSED' : 'READY';
      return change(cloud, found, args, signal, target, (asked) =>
        cloud.client.POST(`${SERVICE}/setHA`, { ...asked, body }),
      );
    },
  );
}

function addSetPooler(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'set_pooler',
    {
      title: 'Enable or disable the connection pooler',
      description:
        'Runs PgBouncer in front of a service, on a port of its own, which get_service shows; ' +
        'or ends it, with the sessions through it. PROD needs confirm for that.',
      kind: 'change',
      input: Type.Object(
        {
          service,
          enabled: Type.Boolean({ description: 'true: with a pooler; false: without' }),
          confirm: confirmOfProd,
          ...wait,
          ...changing,
        },
        closed,
      ),
    },
    async (args, signal) => {
      const found = await findService(cloud, args.service);
      const verb = args.enabled ? 'enablePooler' : 'disablePooler';
      confirmedForProd(verb, found, args);
      return adjust(cloud, found, args, signal, (asked) =>
        cloud.client.POST(`${SERVICE}/${verb}`, asked),
      );
    },
  );
}

function addResetPassword(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'reset_password',
    {
      title: 'Set another password',
      description:
        'Sets the password of tsdbadmin, active at once. Its sessions end, and clients with the ' +
        'former password cannot connect. The answer contains the new one and a connection ' +
        'string, once. PROD needs confirm. Ask the user first, unless it is your own fork.',
      kind: 'write',
      input: Type.Object(
        {
          service,
          password: Type.Optional(
            Type.String({
              minLength: 8,
              maxLength: 128,
              description: 'default: a random one, which is better',
            }),
          ),
          keep_sessions: Type.Optional(
            Type.Boolean({ description: 'true: open sessions stay connected' }),
          ),
          confirm: confirmOfProd,
          ...changing,
        },
        closed,
      ),
    },
    async (args, signal) => {
      const { password = makePassword(), keep_sessions } = args;
      const found = await findService(cloud, args.service);
      confirmedForProd('updatePassword', found, args);
      await cloud.client.POST(`${SERVICE}/updatePassword`, {
        params: { path: pathOf(found), ...askedAs(args) },
        body: { password, ...(keep_sessions === undefined ? {} : { keep_sessions }) },
        signal,
      });
      if (found.forked_from !== undefined) cloud.passwords.keep(found.service_id, password);
      const { service_id, name } = found;
      return {
        summary: `${name} (${service_id}) has another password. Keep it: it is shown once.`,
        data: { service_id, password, connection_string: connectionString(found, password) },
      };
    },
  );
}
