/** Schemas of alerts: destinations, rules and incidents. */
import { Type } from 'typebox';
import {
  ALERT_RULE_NAMES,
  MAX_FOR_MINUTES,
  MAX_THRESHOLD,
  SEVERITIES,
  type ThresholdUnit,
} from '../alerts.ts';
import { Named, StringEnum } from '../schema.ts';
import { VISIBLE_PATTERN } from '../text.ts';
import { DESTINATION_TYPES, INCIDENT_STATUSES, SMTP_ENCRYPTIONS } from '../values.ts';
import { closed, dateTime, httpUrl, moment, name } from './parts.ts';

const text = (maxLength: number, description: string) =>
  Type.String({ minLength: 1, maxLength, pattern: VISIBLE_PATTERN, description });

/** Without spaces, quotes, commas and angle brackets, which would end an address in a header. */
const MAIL_PATTERN = '^[A-Za-z0-9.!#$%&*+/=?^_{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}$';
const mailAddress = (description: string) =>
  Type.String({ maxLength: 254, pattern: MAIL_PATTERN, description });

const TIME_PATTERN = '^([01][0-9]|2[0-3]):[0-5][0-9]$';
const timeOfDay = (description: string) => Type.String({ pattern: TIME_PATTERN, description });

const quietHours = Type.Object(
  {
    from: timeOfDay('HH:MM'),
    to: timeOfDay('HH:MM; earlier than from: of the next day'),
    time_zone: text(64, 'a name of the IANA database, such as Europe/Berlin'),
    critical_passes: Type.Boolean({
      description: 'whether messages of critical rules are sent all the same',
    }),
  },
  {
    ...closed,
    description: 'messages of these hours are held, and sent as one message when they end',
  },
);
export type QuietHours = Type.Static<typeof quietHours>;

const config = Type.Object(
  {
    url: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 2048,
        pattern: VISIBLE_PATTERN,
        ...httpUrl,
        description:
          'slack, teams, webhook: where messages are posted to; no answer shows its path. ' +
          'pagerduty: of the Events API; default: https://events.pagerduty.com/v2/enqueue',
      }),
    ),
    routing_key: Type.Optional(text(256, 'pagerduty: of the service; no answer shows it')),
    host: Type.Optional(text(253, 'smtp: name or address of the mail server')),
    port: Type.Optional(
      Type.Integer({ minimum: 1, maximum: 65_535, description: 'smtp: its port; default: 587' }),
    ),
    encryption: Type.Optional(
      StringEnum(SMTP_ENCRYPTIONS, {
        description: 'smtp: tls from the begin, starttls, or none; default: starttls',
      }),
    ),
    username: Type.Optional(text(256, 'smtp: for the login; absent: no login')),
    password: Type.Optional(text(256, 'smtp: for the login; no answer shows it')),
    from: Type.Optional(mailAddress('smtp: the sender of the mail')),
    to: Type.Optional(
      Type.Array(mailAddress('a recipient'), {
        minItems: 1,
        maxItems: 20,
        uniqueItems: true,
        description: 'smtp: the recipients of the mail',
      }),
    ),
  },
  { ...closed, description: 'what the type needs' },
);
export type DestinationConfig = Type.Static<typeof config>;

export const CreateDestinationBody = Named(
  'CreateAlertDestination',
  Type.Object(
    {
      name: name('1 to 128 characters'),
      type: StringEnum(DESTINATION_TYPES, { description: 'how alerts are sent' }),
      config,
      quiet_hours: Type.Optional(quietHours),
    },
    closed,
  ),
);
export type CreateDestinationBody = Type.Static<typeof CreateDestinationBody>;

export const UpdateDestinationBody = Named(
  'UpdateAlertDestination',
  Type.Object(
    {
      name: Type.Optional(name('1 to 128 characters')),
      config: Type.Optional(config),
      quiet_hours: Type.Optional(
        Type.Union([quietHours, Type.Null()], { description: 'null: none' }),
      ),
    },
    closed,
  ),
);
export type UpdateDestinationBody = Type.Static<typeof UpdateDestinationBody>;

export const DestinationSchema = Named(
  'AlertDestination',
  Type.Object({
    id: Type.String(),
    name: Type.String(),
    type: StringEnum(DESTINATION_TYPES),
    config: Type.Object({
      url: Type.Optional(
        Type.String({ description: 'scheme and host only, but for pagerduty: a path is a secret' }),
      ),
      host: Type.Optional(Type.String()),
      port: Type.Optional(Type.Integer()),
      encryption: Type.Optional(StringEnum(SMTP_ENCRYPTIONS)),
      username: Type.Optional(Type.String()),
      from: Type.Optional(Type.String()),
      to: Type.Optional(Type.Array(Type.String())),
    }),
    quiet_hours: Type.Union([quietHours, Type.Null()], { description: 'null: none' }),
    created: dateTime('when it was created; later alerts are sent to it'),
    last_success: moment('when it last accepted a message; null: never'),
    warning: Type.Optional(
      Type.String({ description: 'why the last message was not accepted, and what fixes it' }),
    ),
    secret: Type.Optional(
      Type.String({
        description:
          'webhook: signs messages, as in Standard Webhooks; in the answer to create only',
      }),
    ),
  }),
);
export type Destination = Type.Static<typeof DestinationSchema>;

const isUnit = (unit: string): unit is ThresholdUnit => unit in MAX_THRESHOLD;
const UNITS = Object.keys(MAX_THRESHOLD).filter(isUnit);

const figure = (description: string) =>
  Type.Union([Type.Integer(), Type.Null()], { description: `${description}; null: none` });

export const AlertRuleSchema = Named(
  'AlertRule',
  Type.Object({
    rule: StringEnum(ALERT_RULE_NAMES),
    about: Type.String({ description: 'what it reports' }),
    severity: StringEnum(SEVERITIES, { description: 'critical: passes quiet hours if wanted' }),
    enabled: Type.Boolean(),
    threshold: figure('from this figure on its condition holds'),
    unit: Type.Union([StringEnum(UNITS), Type.Null()], { description: 'of the threshold' }),
    for_minutes: Type.Integer({
      description: 'how long its condition must hold before an incident opens',
    }),
    default_threshold: figure('the threshold of a project that has set none'),
    default_for_minutes: Type.Integer(),
  }),
);
export type AlertRule = Type.Static<typeof AlertRuleSchema>;

export const SetAlertRuleBody = Named(
  'SetAlertRule',
  Type.Object(
    {
      rule: StringEnum(ALERT_RULE_NAMES, { description: 'the rule to change' }),
      enabled: Type.Optional(Type.Boolean({ description: 'false: it opens no incident' })),
      threshold: Type.Optional(
        Type.Union([Type.Integer({ minimum: 1, maximum: 86_400 }), Type.Null()], {
          description: 'in the unit of the rule; null: its default',
        }),
      ),
      for_minutes: Type.Optional(
        Type.Union([Type.Integer({ minimum: 0, maximum: MAX_FOR_MINUTES }), Type.Null()], {
          description: 'minutes; null: its default',
        }),
      ),
    },
    closed,
  ),
);
export type SetAlertRuleBody = Type.Static<typeof SetAlertRuleBody>;

export const IncidentSchema = Named(
  'Incident',
  Type.Object({
    id: Type.String({ description: 'digits; later incidents have greater ones' }),
    rule: StringEnum(ALERT_RULE_NAMES),
    severity: StringEnum(SEVERITIES),
    status: StringEnum(INCIDENT_STATUSES),
    service_id: Type.Optional(Type.String()),
    about: Type.String({ description: 'the name of the service, or of what else it is about' }),
    message: Type.String({ description: 'what is wrong, with figures' }),
    opened: dateTime('when it was opened'),
    resolved: moment('when its condition had ended for five minutes; null: it is open'),
  }),
);
export type Incident = Type.Static<typeof IncidentSchema>;
