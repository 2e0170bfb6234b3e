/** Schemas of events, of the webhooks that deliver them, and of the audit log. */
import { Type } from 'typebox';
import { ERROR_CODES } from './errors.ts';
import { Named, StringEnum } from './schema.ts';
import { closed, httpUrl } from './schemas/parts.ts';
import { VISIBLE_PATTERN } from './text.ts';
import { AUDIT_OUTCOMES, DELIVERY_STATUSES, EVENT_TYPES } from './values.ts';

const dateTime = (description: string) => Type.String({ format: 'date-time', description });
const dateTimeOrNull = (description: string) => Type.Union([dateTime(description), Type.Null()]);

export const EventSchema = Named(
  'Event',
  Type.Object({
    id: Type.String({
      description: 'digits; later events have greater ones; send the last one as Last-Event-ID',
    }),
    type: StringEnum(EVENT_TYPES),
    timestamp: dateTime('when it was committed'),
    data: Type.Object(
      {
        service_id: Type.Optional(Type.String()),
        operation_id: Type.Optional(Type.String()),
        vpc_id: Type.Optional(Type.String()),
        peering_id: Type.Optional(Type.String()),
        allow_list_id: Type.Optional(Type.String()),
      },
      {
        additionalProperties: true,
        description:
          'service.status: from, status; service.warnings: warnings, all of now; ' +
          'operation.started: kind, requested_by; operation.step: step; ' +
          'operation.failing: error, it is tried again; operation.finished: status, error; ' +
          'service.restore_at_risk: name, restorable_until, used_percent, purged_at_percent, a ' +
          'deleted service that may be purged before its time, since the disk fills; once; ' +
          'service.purged: name, reason, a deleted service that cannot be restored any more; ' +
          'service.expiring: name, expires_at, purge_on_expiry, a service that is deleted soon; ' +
          'service.vpc: from, vpc_id, the VPCs that it is to leave and to join; ' +
          'disk.reserve: region_code, state (released: the disk was full; ' +
          'held: it is there again), bytes; ' +
          'vpc.status: name, status (created, ready, deleting, deleted: nothing is left of it); ' +
          'peering.status: from, status (deleted as well), error_message; ' +
          'allow_list.status: description, cidr_blocks, status (created, changed, deleted); ' +
          'service.allow_list: from, allow_list_id, the allow lists that it had and has',
      },
    ),
  }),
);
export type Event = Type.Static<typeof EventSchema>;

// ── webhooks ─────────────────────────────────────────────────────────────────────────────────────

/** The most webhooks of a project. */
export const MAX_WEBHOOKS = 20;

/**
 * Waits before the second and later attempts, in seconds, each up to a tenth longer: the schedule
 * that Standard Webhooks proposes. After the last one a delivery has failed.
 */
export const RETRY_AFTER_SECONDS = [5, 300, 1800, 7200, 18_000, 36_000, 36_000] as const;

export const CreateWebhookBody = Named(
  'CreateWebhook',
  Type.Object(
    {
      url: Type.String({
        minLength: 1,
        maxLength: 2048,
        pattern: VISIBLE_PATTERN,
        ...httpUrl,
        description: 'http or https, without user and password',
      }),
      types: Type.Optional(
        Type.Array(StringEnum(EVENT_TYPES), {
          maxItems: EVENT_TYPES.length,
          uniqueItems: true,
          description: 'of events; default: all',
        }),
      ),
    },
    // A caller who sends a secret of its own expects deliveries to be signed with it.
    closed,
  ),
);
export type CreateWebhookBody = Type.Static<typeof CreateWebhookBody>;

export const WebhookSchema = Named(
  'Webhook',
  Type.Object({
    id: Type.String(),
    url: Type.String(),
    types: Type.Array(StringEnum(EVENT_TYPES), {
      description: 'of events that are delivered; empty: all',
    }),
    created: dateTime('when it was made; later events are delivered'),
    secret: Type.Optional(
      Type.String({
        description: 'signs deliveries, as in Standard Webhooks; in the answer to create only',
      }),
    ),
  }),
);
export type Webhook = Type.Static<typeof WebhookSchema>;

export const DeliverySchema = Named(
  'Delivery',
  Type.Object({
    id: Type.String(),
    message_id: Type.String({ description: 'the header webhook-id: the same for each attempt' }),
    type: StringEnum(EVENT_TYPES),
    status: StringEnum(DELIVERY_STATUSES, {
      description: 'failed: every attempt failed; POST …/redeliver tries again',
    }),
    attempts: Type.Integer(),
    next_attempt: dateTimeOrNull('when it is tried next; null: it is not'),
    response_status: Type.Union([Type.Integer(), Type.Null()], {
      description: 'HTTP status of the last answer; null: there was none',
    }),
    error: Type.Union([Type.String(), Type.Null()], { description: 'why the last attempt failed' }),
    created: dateTime('when it was begun'),
    finished: dateTimeOrNull('when it was delivered or given up'),
  }),
);
export type Delivery = Type.Static<typeof DeliverySchema>;

export const WebhookTestSchema = Named(
  'WebhookTest',
  Type.Object({
    delivered: Type.Boolean(),
    response_status: Type.Union([Type.Integer(), Type.Null()]),
    error: Type.Union([Type.String(), Type.Null()], { description: 'why it was not delivered' }),
    elapsed_ms: Type.Integer({ description: 'milliseconds' }),
  }),
);
export type WebhookTest = Type.Static<typeof WebhookTestSchema>;

// ── audit log ────────────────────────────────────────────────────────────────────────────────────

export const AuditEntrySchema = Named(
  'AuditEntry',
  Type.Object({
    id: Type.String({ description: 'digits' }),
    at: dateTime('when it was decided'),
    public_key: Type.Union([Type.String(), Type.Null()], {
      description: 'who asked; of a refused one it is what they said; null: nothing',
    }),
    address: Type.String({ description: 'from where' }),
    call: Type.String({
      description:
        'operationId of this document; removeRecoveryPoints and removeWal: the control plane ' +
        'itself removed moments that could be restored, since the service grew beyond its ' +
        'storage_gb, or the disk was full; purgeOnFullDisk: it removed the data of a deleted ' +
        'service from the machine before the time for a restore was over, since the disk was ' +
        'nearly full; expireService: it deleted a service whose time was over',
    }),
    method: Type.String(),
    path: Type.String(),
    service_id: Type.Optional(Type.String()),
    operation_id: Type.Optional(Type.String({ description: 'what was begun by it' })),
    outcome: StringEnum(AUDIT_OUTCOMES),
    status: Type.Integer({ description: 'HTTP status of the answer' }),
    code: Type.Optional(StringEnum(ERROR_CODES, { description: 'why it was refused' })),
    request_id: Type.String({
      description: 'of the first call, where the entry counts several',
    }),
    count: Type.Optional(
      Type.Integer({
        minimum: 2,
        description:
          'how many calls the entry counts: refused calls, and statements of one key on one ' +
          'service, are counted together for ten minutes; ' +
          'address, path and service_id are those of the first. Absent: 1',
      }),
    ),
    last_at: Type.Optional(dateTime('when the last of them was decided')),
  }),
);
export type AuditEntry = Type.Static<typeof AuditEntrySchema>;
