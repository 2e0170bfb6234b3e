/** Parts that schemas of several resources share. Not exported from the package. */
import { Type } from 'typebox';
import { IPV4, IPV6_IN_URL } from '../values.ts';
import { documented } from '../schema.ts';
import { STORAGE_GB } from '../sizes.ts';
import { REGION_CODE_PATTERN, VISIBLE_PATTERN } from '../text.ts';
import { MAX_REPLICAS, NAME_MAX_CHARACTERS, OLDEST_PG_VERSION } from '../types.ts';

export const NO_CONTROL_CHARACTERS = '^[^\\u0000-\\u001f\\u007f-\\u009f]*$';

/**
 * Refuses unknown fields of a body, where a field that is lost does harm: a limit, a restriction of
 * a key. All other bodies are open, like those of Tiger Cloud (body-fields.ts of the server).
 */
export const closed = { additionalProperties: false } as const;

export const dateTime = (description: string) => Type.String({ format: 'date-time', description });

/** Names are shown in terminals, logs and pages: no invisible characters. */
export const name = (description: string) =>
  Type.String({
    minLength: 1,
    maxLength: NAME_MAX_CHARACTERS,
    pattern: VISIBLE_PATTERN,
    description,
  });

/** Scripts that are run again, and people who call services by their name, want one of a name. */
export const uniqueName = Type.Boolean({
  description: 'true: refused with 409 when the project has a service of this name',
});

/** A number of a request: clients send digits as a string or an integer. */
export const sizeInput = (description: string, shared: boolean) =>
  Type.Union(
    [
      Type.String({ pattern: shared ? '^([0-9]{1,9}|shared)$' : '^[0-9]{1,9}$' }),
      Type.Integer({ minimum: 0 }),
    ],
    { description },
  );

export const storageGb = (description: string) =>
  Type.Integer({ minimum: STORAGE_GB.min, maximum: STORAGE_GB.max, description });

/** @param otherwise what holds without the field */
export const cpuBound = (otherwise: string) =>
  Type.Union([Type.Boolean(), Type.Null()], {
    description:
      'true: its servers never use more CPU than their size; false: they may, where processors ' +
      `are idle; null: as its region has it; default: ${otherwise}`,
  });

/** The longest lifetime: ten years, in seconds. */
const MAX_TTL_SECONDS = 315_360_000;

export const ttlSeconds = (description: string) =>
  Type.Integer({ minimum: 1, maximum: MAX_TTL_SECONDS, description });

/** The longest time after which a service falls asleep: a week, in seconds. */
const MAX_SUSPEND_SECONDS = 604_800;
/** The shortest: a session that is idle for so long ends. */
const MIN_SUSPEND_SECONDS = 5;

/** A time after which a service falls asleep. */
export const suspendSeconds = (options: { description?: string } = {}) =>
  Type.Integer({ minimum: MIN_SUSPEND_SECONDS, maximum: MAX_SUSPEND_SECONDS, ...options });

/** @param otherwise what holds without it */
export const autoSuspendSeconds = (otherwise: string) =>
  Type.Union([suspendSeconds(), Type.Null()], {
    description:
      'its server stops when nobody has used it for so long, and the next client has it ' +
      `started again; null: never; default: ${otherwise}`,
  });

/** For how long a new service is there. @param otherwise what holds without these fields */
export const lifetime = (otherwise: string) => ({
  ttl_seconds: Type.Optional(
    ttlSeconds(`it is deleted so many seconds after it was made; default: ${otherwise}`),
  ),
  expires_at: Type.Optional(dateTime('it is deleted at this moment; in place of ttl_seconds')),
  purge_on_expiry: Type.Optional(
    Type.Boolean({
      default: false,
      description: 'true: it cannot be restored after it has expired',
    }),
  ),
});

export const force = Type.Optional(
  Type.Boolean({
    default: false,
    description: 'accept a size that is more than the machine, or the largest node, has',
  }),
);

export const pgVersion = (description: string) =>
  Type.String({
    pattern: '^(1[6-9]|[2-9][0-9])$',
    description: `the major version of PostgreSQL, ${OLDEST_PG_VERSION} or newer; ${description}`,
  });

export const replicaCount = Type.Integer({
  minimum: 0,
  maximum: MAX_REPLICAS,
  description: `HA replicas, 0 to ${MAX_REPLICAS}`,
});

export const syncReplicaCount = Type.Integer({
  minimum: 0,
  maximum: MAX_REPLICAS,
  description: 'number of synchronous standbys: they have every write before it is acknowledged',
});

/** In the answers to calls whose body has fields that the call does not know. */
export const ignored = Type.Optional(
  Type.Array(Type.String(), {
    description: 'fields of the request that this call does not know; they had no effect',
  }),
);

export const vpcId = (description: string) =>
  Type.String({ minLength: 1, maxLength: 64, pattern: VISIBLE_PATTERN, description });

export const moment = (description: string) => Type.Union([dateTime(description), Type.Null()]);

export const count = (description: string) => Type.Integer({ minimum: 0, description });

export const limit = (description: string) =>
  Type.Optional(
    Type.Union([Type.Integer({ minimum: 0, maximum: 1_000_000_000 }), Type.Null()], {
      description: `${description}; null: no limit`,
    }),
  );

/** The code of a region of this installation, or another name that it has (an alias). */
export const regionCode = (description: string) =>
  Type.String({
    maxLength: 64,
    ...documented({ pattern: REGION_CODE_PATTERN }),
    description,
  });

/** A name, whose last part begins with a letter, or an address. */
const LABEL = '[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?';
const HOST = `(${IPV6_IN_URL}|${IPV4}|(${LABEL}\\.){0,3}[A-Za-z]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?)`;

/**
 * http or https, without user and password. The server takes more than the pattern says, such as a
 * query, but nothing that it says is refused for its form.
 */
export const httpUrl = documented({
  format: 'uri',
  pattern: `^https?://${HOST}(:[1-9][0-9]{0,3})?(/[A-Za-z0-9._~/-]{0,200})?$`,
});
