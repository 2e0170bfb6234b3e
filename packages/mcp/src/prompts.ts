/** Ways of working that a user starts by name. */
import { fromJsonSchema } from '@modelcontextprotocol/server';
import { Type, type Static, type TObject } from 'typebox';
import { closed, service, type ToolServer } from './tool.ts';

const text = (description: string) => Type.String({ minLength: 1, description });

export function addPrompts(server: ToolServer): void {
  addPrompt(
    server,
    'try_migration',
    'Try a migration on a fork',
    'Runs a migration on a copy of a service, and reports time, locks and differences.',
    Type.Object({ service, sql: text('the migration, or what it must do') }, closed),
    ({ service: of, sql }) =>
      `Try this migration of the Howdah service ${quoted(of)} on a fork, never on the service.
1. fork_service. Keep to this fork.
2. apply_migration on the fork. If it fails, the fork is as before: correct it, and try again.
3. Test it: queries that the application makes, with db_query and explain; writes with execute.
4. diff with count_rows, if the tables are small: is only that different which must be?
5. Report duration, locks that others wait for, differences, and what could not be tested.
6. delete_service the fork.

The migration:
${fenced(sql)}`,
  );
  addPrompt(
    server,
    'why_slow',
    'Find out why something is slow',
    'Looks at a service, or at one statement, and proposes changes that it has tried.',
    Type.Object(
      { service, statement: Type.Optional(text('the slow statement; default: all of it')) },
      closed,
    ),
    ({ service: of, statement }) =>
      `Find out why the Howdah service ${quoted(of)} is slow. Change nothing on it.
1. get_service: its size, warnings, and what it waits for; get_metrics for the last hours.
2. get_logs with severities ERROR and FATAL, then for long statements.
3. db_query: pg_stat_activity and pg_locks show what runs and waits just now.
4. explain, with analyze and on_fork for statements that are heavy.
5. An index or another setting may help: fork_service, try it there with execute, and compare
   plans with explain. Then delete_service the fork.
6. Report the cause, the evidence, and a remedy with its measured effect.
${statement === undefined ? '' : `\nThe statement:\n${fenced(statement)}`}`,
  );
  addPrompt(
    server,
    'what_changed',
    'What has changed since a moment',
    'Compares a service with itself at an earlier moment, and finds lost rows or tables.',
    Type.Object({ service, moment: text('2026-01-31T12:00:00Z, or in words') }, closed),
    ({ service: of, moment }) =>
      `Find out what has changed in the Howdah service ${quoted(of)} since ${quoted(moment)}.
1. list_backups: can fork_service reach this moment?
2. fork_service with the strategy PITR and the moment as target_time.
3. diff with service: the service, against: the fork; with count_rows, if the tables are small.
4. Compare rows of tables that differ with db_query on both.
5. Report the differences. Copy nothing back without asking. delete_service the fork.`,
  );
}

function addPrompt<Input extends TObject>(
  server: ToolServer,
  name: string,
  title: string,
  description: string,
  input: Input,
  write: (args: Static<Input>) => string,
): void {
  server.registerPrompt(
    name,
    { title, description, argsSchema: fromJsonSchema<Static<Input>>(input) },
    (args) => ({
      description,
      messages: [{ role: 'user', content: { type: 'text', text: write(args) } }],
    }),
  );
}

const quoted = (name: string): string => JSON.stringify(name);

const fenced = (sql: string): string => `=====\n${sql}\n=====`;
