/**
 * What an import does with each statement of a script. A service has one database and one owner,
 * tsdbadmin, who is no superuser: statements about databases, owners and roles are left out, others
 * are changed, and what needs a superuser is in the way.
 */
import { escapeIdentifier } from 'pg';

/** The way in which an import treats a statement. */
export type Verdict =
  | { readonly kind: 'keep' }
  /** Another text in its place. */
  | { readonly kind: 'change'; readonly text: string }
  /** A privilege: it is granted if that is possible. Roles that it names are made before. */
  | { readonly kind: 'privilege'; readonly roles: readonly string[] }
  /** A policy, which names roles. */
  | { readonly kind: 'policy'; readonly roles: readonly string[] }
  | { readonly kind: 'role'; readonly name: string }
  /** `group`: a key of {@link LEFT_OUT}. */
  | { readonly kind: 'leave out'; readonly group: LeftOut }
  | { readonly kind: 'extension'; readonly name: string }
  /** The statements after this one belong to another database. */
  | { readonly kind: 'connect'; readonly database: string }
  | Obstacle;

/** A statement that a service cannot run; `remedy`: what to change. */
export type Obstacle = {
  readonly kind: 'obstacle';
  readonly what: string;
  readonly remedy: string;
};

/** Why statements are left out, for the list of them. */
export const LEFT_OUT = {
  owner: 'owners, and privileges on what other roles make later: tsdbadmin owns everything',
  database: 'statements about databases: the service has one',
  role: 'roles, passwords and memberships: roles that have privileges are made without login',
  schema: 'the schema public: the service has it',
  extension: 'extensions that the service has, and comments on extensions',
  transaction: 'limits of transactions: an import is one transaction',
  maintenance: 'maintenance: an import ends with ANALYZE',
  setting: 'settings that the service does not have or only superusers may change',
  tablespace: 'tablespaces: the service has one',
  eventTrigger: 'event triggers: only superusers may create them',
  foreign: 'foreign servers: services connect to nobody',
  replication: 'publications and subscriptions',
  label: 'security labels',
  psql: 'commands of psql that change its output',
  internal: 'rows of TimescaleDB itself, which mean nothing without hypertables',
} as const;
export type LeftOut = keyof typeof LEFT_OUT;

const KEEP: Verdict = { kind: 'keep' };
const leaveOut = (group: LeftOut): Verdict => ({ kind: 'leave out', group });
const obstacle = (what: string, remedy: string): Verdict => ({ kind: 'obstacle', what, remedy });

const NAME = '(?:"(?:[^"]|"")+"|[\\w$\\x80-\\xff]+)';
const OBJECT = `(?:${NAME}\\s*\\.\\s*)*${NAME}`;

/** A name as the catalog has it. */
export function unquoted(name: string): string {
  return name.startsWith('"') ? name.slice(1, -1).replaceAll('""', '"') : name.toLowerCase();
}

/** The first name that a pattern with one group finds. */
const nameIn = (pattern: RegExp, outline: string): string | null => {
  const found = pattern.exec(outline)?.[1];
  return found === undefined ? null : unquoted(found);
};

type Rule = readonly [RegExp, (outline: string, text: string) => Verdict];

const always =
  (verdict: Verdict): Rule[1] =>
  () =>
    verdict;

const i = (...sources: string[]): RegExp => new RegExp(`^(?:${sources.join('|')})`, 'i');

/** The part of a statement that names what it makes. */
const SHOWN_CHARACTERS = 80;

/** Kinds of objects that only a superuser may create, with the beginning of their statement. */
const OF_SUPERUSERS: readonly (readonly [RegExp, string])[] = [
  [i(`CREATE TYPE ${OBJECT}$`, `CREATE TYPE ${OBJECT} \\((?!.*\\bSUBTYPE\\b)`), 'a base type'],
  [i('CREATE OPERATOR (?:CLASS|FAMILY) '), 'an operator class'],
  [i('CREATE ACCESS METHOD '), 'an access method'],
  [i('CREATE TEXT SEARCH (?:PARSER|TEMPLATE) '), 'a parser or template of text search'],
  [i('CREATE CAST .* WITHOUT FUNCTION\\b'), 'a cast without a function'],
  [i('CREATE TRANSFORM '), 'a transform'],
  [i('IMPORT FOREIGN SCHEMA '), 'a foreign schema'],
];

const RULES: readonly Rule[] = [
  // Scripts have very many of these.
  [i('INSERT INTO (?!`)'), always(KEEP)],
  [i('ALTER .*\\bOWNER TO [^,;]*$'), always(leaveOut('owner'))],
  [
    i('(?:SET|RESET) (?:LOCAL |SESSION )?(?:ROLE|SESSION AUTHORIZATION)\\b'),
    always(leaveOut('owner')),
  ],
  [i('REASSIGN OWNED ', 'DROP OWNED '), always(leaveOut('owner'))],
  [i('(?:CREATE|ALTER|DROP) DATABASE ', 'COMMENT ON DATABASE '), always(leaveOut('database'))],
  [i('CREATE (?:ROLE|USER|GROUP) (?!MAPPING)'), role],
  [
    i('(?:ALTER|DROP) (?:ROLE|USER|GROUP) (?!MAPPING)', 'COMMENT ON ROLE '),
    always(leaveOut('role')),
  ],
  [i(`DROP SCHEMA (?:IF EXISTS )?"?public"?\\b`), always(leaveOut('schema'))],
  [i('CREATE SCHEMA '), schema],
  [i('CREATE EXTENSION '), extension],
  [i('(?:ALTER|DROP|COMMENT ON) EXTENSION '), always(leaveOut('extension'))],
  [
    i(
      '(?:CREATE|DROP) (?:OR REPLACE )?(?:TRUSTED )?(?:PROCEDURAL )?LANGUAGE ' +
        '(?:IF EXISTS )?"?plpgsql"?\\b',
    ),
    always(leaveOut('extension')),
  ],
  [i('COMMENT ON (?:PROCEDURAL )?LANGUAGE '), always(leaveOut('extension'))],
  [
    i('CREATE (?:OR REPLACE )?(?:TRUSTED )?(?:PROCEDURAL )?LANGUAGE '),
    always(obstacle('a language', 'remove it and its functions')),
  ],
  [i('(?:CREATE|ALTER|DROP|COMMENT ON) EVENT TRIGGER '), always(leaveOut('eventTrigger'))],
  [
    i('(?:CREATE|ALTER|DROP|COMMENT ON) (?:SERVER|USER MAPPING|FOREIGN DATA WRAPPER) '),
    always(leaveOut('foreign')),
  ],
  [
    i('CREATE FOREIGN TABLE '),
    (outline) =>
      obstacle(
        `a foreign table: ${outline.slice(0, SHOWN_CHARACTERS)}`,
        'create a table in its place, or remove it',
      ),
  ],
  [
    i('(?:CREATE|ALTER|DROP|COMMENT ON) (?:PUBLICATION|SUBSCRIPTION) '),
    always(leaveOut('replication')),
  ],
  [i('(?:CREATE|ALTER|DROP|COMMENT ON) TABLESPACE '), always(leaveOut('tablespace'))],
  [i('SECURITY LABEL '), always(leaveOut('label'))],
  [i('(?:BEGIN|COMMIT|END|START TRANSACTION)\\b'), always(leaveOut('transaction'))],
  [
    i('(?:ROLLBACK|ABORT|PREPARE TRANSACTION|COMMIT PREPARED)\\b(?! TO\\b)'),
    always(obstacle('a transaction that is not committed', 'remove it')),
  ],
  [i('(?:VACUUM|CHECKPOINT|DISCARD|CLUSTER(?: VERBOSE)?$)'), always(leaveOut('maintenance'))],
  [i('ALTER SYSTEM ', 'LOAD '), always(leaveOut('setting'))],
  [i('SET '), setting],
  [i('COPY '), copy],
  [i('SELECT pg_catalog\\.setval\\('), sequence],
  [
    i('(?:CREATE(?: UNIQUE)?|DROP) INDEX CONCURRENTLY\\b', 'REINDEX .*\\bCONCURRENTLY\\b'),
    concurrently,
  ],
  [i('ALTER TABLE .*\\b(?:DISABLE|ENABLE) TRIGGER ALL\\b'), triggers],
  [i('(?:GRANT|REVOKE) ', 'ALTER DEFAULT PRIVILEGES '), privilege],
  [i('(?:CREATE|ALTER) POLICY '), policy],
  [i('CREATE (?:OR REPLACE )?(?:FUNCTION|PROCEDURE) '), routine],
  [i('CREATE (?:OR REPLACE )?AGGREGATE '), aggregate],
  [i('CREATE CAST '), cast],
  ...OF_SUPERUSERS.map(([pattern, what]): Rule => [
    pattern,
    (outline) =>
      obstacle(
        `${what}: ${outline.slice(0, SHOWN_CHARACTERS)}`,
        'only superusers may create it: remove it, and what uses it',
      ),
  ]),
  [
    i('CREATE TABLE (?:IF NOT EXISTS )?`', 'INSERT INTO `', 'DROP TABLE IF EXISTS `'),
    always(obstacle('SQL of MySQL', 'pgloader copies a MySQL database into a service')),
  ],
];

/** Decides about a statement, by its outline where that is enough. */
export function judge(outline: string, text: string): Verdict {
  const rule = RULES.find(([pattern]) => pattern.test(outline));
  return rule === undefined ? KEEP : rule[1](outline, text);
}

// ── statements ──

function role(outline: string): Verdict {
  const name = nameIn(
    new RegExp(`^CREATE (?:ROLE|USER|GROUP) (?:IF NOT EXISTS )?(${NAME})`, 'i'),
    outline,
  );
  return name === null ? leaveOut('role') : { kind: 'role', name };
}

function schema(outline: string, text: string): Verdict {
  if (/^CREATE SCHEMA (?:IF NOT EXISTS )?"?public"?(?: |$)/i.test(outline))
    return leaveOut('schema');
  const owned = new RegExp(
    `^(CREATE SCHEMA (?:IF NOT EXISTS )?)(${NAME})? ?AUTHORIZATION (${NAME})$`,
    'i',
  );
  const [, head = '', name, owner = ''] = owned.exec(outline) ?? [];
  if (owner === '') return /\bAUTHORIZATION\b/i.test(outline) ? withoutOwner(text) : KEEP;
  return { kind: 'change', text: `${head}${name ?? owner};\n` };
}

const withoutOwner = (text: string): Verdict => ({
  kind: 'change',
  text: text.replace(new RegExp(`\\s+AUTHORIZATION\\s+${NAME}`, 'i'), ''),
});

function extension(outline: string): Verdict {
  const name = nameIn(new RegExp(`^CREATE EXTENSION (?:IF NOT EXISTS )?(${NAME})`, 'i'), outline);
  if (name === null || name === 'plpgsql') return leaveOut('extension');
  return { kind: 'extension', name };
}

/** Settings that only superusers may change, as dumps and scripts for loading use them. */
const SETTINGS_OF_SUPERUSERS = new Set([
  'session_replication_role',
  'log_min_messages',
  'log_statement',
  'log_min_duration_statement',
  'track_functions',
  'zero_damaged_pages',
  'allow_system_table_mods',
  'temp_file_limit',
  'max_stack_depth',
]);

function setting(outline: string, text: string): Verdict {
  const name = nameIn(new RegExp(`^SET (?:LOCAL |SESSION )?(${OBJECT})`, 'i'), outline) ?? '';
  if (SETTINGS_OF_SUPERUSERS.has(name)) return leaveOut('setting');
  if (name === 'default_tablespace') return /''/.test(text) ? KEEP : leaveOut('tablespace');
  // PostgreSQL 17 brought it, and a service may be older. Dumps set it to what it is anyway.
  if (name === 'transaction_timeout') return { kind: 'change', text: '' };
  if (name === 'default_table_access_method' && !/\bheap\b/i.test(text))
    return obstacle('tables of another access method', 'set default_table_access_method = heap');
  return KEEP;
}

function copy(outline: string): Verdict {
  if (/_timescaledb_catalog\s*\.\s*"?hypertable"?\b/i.test(outline))
    return obstacle(
      'hypertables, which a dump restores only with rights that no tenant has',
      'import from the live database, postgres://…',
    );
  if (/^COPY "?_timescaledb_/i.test(outline)) return leaveOut('internal');
  if (/ FROM STDIN\b/i.test(outline)) return KEEP;
  return obstacle(
    'COPY with a file of the server',
    'use COPY … FROM stdin, with the rows after it',
  );
}

function sequence(_outline: string, text: string): Verdict {
  return /setval\('_timescaledb_/i.test(text) ? leaveOut('internal') : KEEP;
}

function concurrently(_outline: string, text: string): Verdict {
  return { kind: 'change', text: text.replace(/\s+CONCURRENTLY\b/i, '') };
}

/** Those of foreign keys belong to the system. */
function triggers(_outline: string, text: string): Verdict {
  const changed = text.replaceAll(/\b((?:DISABLE|ENABLE)\s+TRIGGER)\s+ALL\b/gi, '$1 USER');
  return { kind: 'change', text: changed };
}

const TRUSTED_LANGUAGES = new Set(['sql', 'plpgsql', 'plperl', 'pltcl', 'plv8', 'plrust']);

function routine(outline: string, text: string): Verdict {
  const head = new RegExp(`^CREATE (?:OR REPLACE )?(?:FUNCTION|PROCEDURE) (${OBJECT})`, 'i');
  const name = head.exec(outline)?.[1] ?? 'a function';
  const [, written = 'sql'] = new RegExp(`\\bLANGUAGE (${NAME}|'')`, 'i').exec(outline) ?? [];
  // Old scripts have the language in quotes.
  const language =
    written === "''" ? (nameIn(/\bLANGUAGE\s+'(\w+)'/i, text) ?? 'sql') : unquoted(written);
  if (!TRUSTED_LANGUAGES.has(language))
    return obstacle(
      `the function ${name} in the language ${language}`,
      'only superusers may create it: write it in another language, or remove it',
    );
  if (/(?<!NOT )\bLEAKPROOF\b/i.test(outline))
    return obstacle(
      `the function ${name} is LEAKPROOF`,
      'only superusers may say so: remove the word',
    );
  return KEEP;
}

function aggregate(outline: string): Verdict {
  return /\bSTYPE ?= ?"?internal"?\b/i.test(outline)
    ? obstacle(
        'an aggregate with a state of the type internal',
        'only superusers may create it: remove it',
      )
    : KEEP;
}

const BUILT_IN = new Set(
  (
    'bigint bit bool boolean bytea char character cidr date float4 float8 inet int int2 int4 ' +
    'int8 integer interval json jsonb money name numeric oid real regclass smallint text time ' +
    'timestamp timestamptz uuid varchar xml'
  ).split(' '),
);

/** A role may create a cast from or to a type that it owns. */
function cast(outline: string): Verdict {
  const [, from = '', to = ''] = /^CREATE CAST \((.*?) AS (.*?)\)/i.exec(outline) ?? [];
  const isBuiltIn = (type: string): boolean => {
    const [word = ''] = type
      .trim()
      .replace(/^pg_catalog\./i, '')
      .split(/[ ([]/);
    return BUILT_IN.has(word.toLowerCase());
  };
  if (/ WITHOUT FUNCTION\b/i.test(outline) || (isBuiltIn(from) && isBuiltIn(to)))
    return obstacle(`the cast from ${from} to ${to}`, 'only superusers may create it: remove it');
  return KEEP;
}

// ── privileges ──

/** Words that stand for roles. */
const NOBODY = new Set(['public', 'current_user', 'current_role', 'session_user']);

function privilege(outline: string): Verdict {
  // As the owner of other objects, or of all that the owner makes later.
  const owner = nameIn(new RegExp(`\\bFOR (?:ROLE|USER) (${NAME})`, 'i'), outline);
  if (owner !== null && !NOBODY.has(owner) && owner !== 'tsdbadmin') return leaveOut('owner');
  if (!/ ON /i.test(outline)) {
    if (!/^ALTER /i.test(outline)) return leaveOut('role');
  } else if (
    / ON (?:DATABASE|TABLESPACE|PARAMETER|FOREIGN|LANGUAGE|(?:PROCEDURAL )?LANGUAGE) /i.test(
      outline,
    )
  )
    return leaveOut('database');
  const listed =
    /.* (?:TO|FROM) (.*?)(?: WITH GRANT OPTION| GRANTED BY .*| CASCADE| RESTRICT)*$/i.exec(outline);
  return { kind: 'privilege', roles: rolesIn(listed?.[1] ?? '') };
}

function policy(outline: string): Verdict {
  const head = new RegExp(
    `^(?:CREATE|ALTER) POLICY ${NAME} ON ${OBJECT}(?: AS \\w+)?(?: FOR \\w+)? TO ` +
      '(.*?)(?: USING ?\\(| WITH CHECK ?\\(|$)',
    'i',
  );
  const listed = head.exec(outline);
  return { kind: 'policy', roles: rolesIn(listed?.[1] ?? '') };
}

function rolesIn(list: string): string[] {
  return [...list.matchAll(new RegExp(`(?:^|,)\\s*(?:GROUP )?(${NAME})`, 'gi'))]
    .map(([, name = '']) => unquoted(name))
    .filter((name) => !NOBODY.has(name));
}

// ── commands of psql ──

/** Commands of psql that do not change the import. */
const HARMLESS = /^\\(?:echo|qecho|warn|timing|pset|a|t|x|encoding|conninfo|errverbose|prompt)\b/;

/** Decides about a command of psql: psql itself runs none of them. */
export function judgeCommand(command: string): Verdict {
  const [, written] = /^\\c(?:onnect)?\s+(?:-reuse-previous=\w+\s+)?(.*)$/.exec(command) ?? [];
  if (written !== undefined) return { kind: 'connect', database: databaseIn(written) };
  // pg_dump's own restriction of psql: an import has one already.
  if (/^\\(?:un)?restrict\b/.test(command)) return { kind: 'change', text: '' };
  if (
    /^\\set\s+(?:ON_ERROR_STOP|ECHO|QUIET|VERBOSITY|SHOW_CONTEXT)\b/i.test(command) ||
    HARMLESS.test(command)
  )
    return leaveOut('psql');
  const [name = command] = command.split(/\s/);
  return obstacle(
    `the command ${name} of psql, which is not run: it may run programs or read files`,
    /^\\ir?\b|^\\include/.test(name)
      ? 'put there what the other file has'
      : 'write it in SQL, or remove it',
  );
}

/** `shop;`, `"a b" user`, `"dbname='a b'"`. */
function databaseIn(written: string): string {
  const connection = /dbname='((?:[^'\\]|\\.)*)'/.exec(written)?.[1];
  if (connection !== undefined) return connection.replaceAll(/\\(.)/g, '$1');
  const name = new RegExp(`^(${NAME}|'[^']*')`).exec(written)?.[1] ?? written;
  return name.replaceAll(/^["']|["']$/g, '');
}

/** Where a session notes the privileges that cannot be granted. */
const NOTED = 'howdah_import.not_granted';

/**
 * A privilege that does not end the import if it cannot be granted.
 *
 * @param tag of the dollar quotes
 */
export function tolerant(text: string, tag: string): string {
  return (
    `DO $${tag}$ BEGIN EXECUTE $${tag}_$${text.trim().replace(/;$/, '')}$${tag}_$; ` +
    `EXCEPTION WHEN OTHERS THEN PERFORM pg_catalog.set_config('${NOTED}', ` +
    `coalesce(pg_catalog.current_setting('${NOTED}', true), '') || sqlerrm || E'\\n', true); ` +
    `END $${tag}$;\n`
  );
}

/** Says, as a warning that begins with the tag, which privileges could not be granted. */
export const reporting = (tag: string): string =>
  `DO $${tag}$ DECLARE noted text[] := pg_catalog.string_to_array(pg_catalog.rtrim(` +
  `pg_catalog.current_setting('${NOTED}', true), E'\\n'), E'\\n'); BEGIN ` +
  `IF pg_catalog.cardinality(noted) > 0 THEN RAISE WARNING '${tag} % (%)', ` +
  `pg_catalog.cardinality(noted), pg_catalog.array_to_string(noted[1:3], '; '); ` +
  `END IF; END $${tag}$;\n`;

/** A role that has privileges, without password and login, where it is missing. */
export const makingRole = (name: string): string =>
  `create role ${escapeIdentifier(name)} nologin;\n`;
