/**
 * How a tool is declared: one shape of results, one of errors, and the hints by which clients ask
 * their users.
 */
import type { Action } from '@howdah/contract/actions';
import { asksForName } from '@howdah/contract/effects';
import { subjectOf } from '@howdah/contract/permissions';
import { DryRunError } from '@howdah/client';
import { makeVisible, visibleJson } from '@howdah/contract';
import {
  fromJsonSchema,
  type CallToolResult,
  type McpServer,
  type ToolAnnotations,
} from '@modelcontextprotocol/server';
import { AsyncLocalStorage } from 'node:async_hooks';
import { Type, type Static, type TObject } from 'typebox';
import { explain, Problem } from './problem.ts';

/** Warnings of the API in its answers to the calls of one tool. */
const warnings = new AsyncLocalStorage<string[]>();

/** Adds a warning to the result of the tool that is running: the agent must not miss it. */
export function noteWarning(text: string): void {
  warnings.getStore()?.push(text);
}

/** The result of a tool: a line for people, and data for programs. */
export type Outcome = { summary: string; data: Record<string, unknown> };

/**
 * read: changes nothing. make: each call creates something. change: repeating the call changes
 * nothing more. destroy: sessions end or data is deleted.
 */
const HINTS = {
  read: { readOnlyHint: true, openWorldHint: false },
  make: {
    readOnlyHint: false,
    destructiveHint: false,
    idempotentHint: false,
    openWorldHint: false,
  },
  change: {
    readOnlyHint: false,
    destructiveHint: false,
    idempotentHint: true,
    openWorldHint: false,
  },
  destroy: {
    readOnlyHint: false,
    destructiveHint: true,
    idempotentHint: true,
    openWorldHint: false,
  },
} as const satisfies Record<string, ToolAnnotations>;

export type Declaration<Input extends TObject> = {
  title: string;
  /** The effect of the tool, its cost, and the call to try first. */
  description: string;
  kind: keyof typeof HINTS;
  input: Input;
};

/** @param work receives arguments that match the schema */
export function addTool<Input extends TObject>(
  server: McpServer,
  name: string,
  { title, description, kind, input }: Declaration<Input>,
  work: (args: Static<Input>, signal: AbortSignal) => Promise<Outcome>,
): void {
  server.registerTool(
    name,
    {
      title,
      description,
      inputSchema: fromJsonSchema<Static<Input>>(input),
      annotations: { title, ...HINTS[kind] },
    },
    async (args, { mcpReq }): Promise<CallToolResult> => {
      const noted: string[] = [];
      try {
        const { summary, data } = await warnings.run(noted, () => work(args, mcpReq.signal));
        return result({ summary: [summary, ...noted].join(' Warning: '), data });
      } catch (error) {
        if (error instanceof DryRunError) return result(dryRun(error));
        const problem = explain(error);
        return {
          ...result({
            summary: `${problem.code}: ${problem.message}. Next: ${problem.try_next}.`,
            data: problem,
          }),
          isError: true,
        };
      }
    },
  );
}

/** The result as text too, for clients that show nothing else: the line, and the data as JSON. */
function result({ summary, data }: Outcome): CallToolResult {
  // Texts of tenants must not contain instructions that only the agent sees.
  const json = visibleJson(JSON.stringify(data));
  return {
    content: [{ type: 'text', text: `${makeVisible(summary)}\n${json}` }],
    structuredContent: JSON.parse(json),
  };
}

function dryRun({ answer: { operation } }: DryRunError): Outcome {
  const steps =
    operation === null
      ? 'nothing: there is no change, or it needs no operation'
      : `${operation.kind}: ${operation.steps.join(', ')}`;
  return { summary: `Nothing was done. It would do ${steps}.`, data: { dry_run: true, operation } };
}

// ── arguments that many tools have ───────────────────────────────────────────────────────────────

export const closed = { additionalProperties: false } as const;
export const service = Type.String({
  minLength: 1,
  maxLength: 128,
  description: 'name or service_id',
});

/** Arguments of tools that change something. */
export const changing = {
  dry_run: Type.Optional(
    Type.Boolean({
      description: 'true: nothing is done; the answer lists the steps that the change would take',
    }),
  ),
  idempotency_key: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 255,
      description:
        'repeat a call with the same key when you do not know whether it arrived: ' +
        'the change is made once. Default: a new key for each call',
    }),
  ),
};
export type Changing = { dry_run?: boolean; idempotency_key?: string; confirm?: string };

/** The query and the headers of a change. */
export const askedAs = ({ dry_run, idempotency_key, confirm: name }: Changing) => ({
  query: {
    ...(dry_run === true ? ({ dry_run: 'true' } as const) : {}),
    ...(name === undefined ? {} : { confirm: name }),
  },
  header: idempotency_key === undefined ? {} : { 'Idempotency-Key': idempotency_key },
});

export const wait = {
  wait_seconds: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: 300,
      default: 45,
      description:
        'how long to wait for the operation; 0: return at once, then use wait_for_operation',
    }),
  ),
};
export const WAIT_SECONDS = 45;

/** The name once more, so that nothing is stopped, restarted or deleted by mistake. */
export const confirm = Type.String({
  description: 'the exact name of the service, to confirm that you mean it; ask the user first',
});

/** The same, of tools that need it for PROD services only. */
export const confirmOfProd = Type.Optional(
  Type.String({ description: 'the exact name of a PROD service; ask the user first' }),
);

/** A service, or a deleted one, whose name must be confirmed. */
export type Confirmable = { name: string; metadata: { environment: string } };

/** @throws Problem unless the name of a PROD service is repeated, where the action needs that */
export function confirmedForProd(
  action: Action,
  found: Confirmable & Parameters<typeof subjectOf>[0],
  { confirm: echo, dry_run: dryRun }: Changing,
): void {
  if (dryRun === true || !asksForName(action, subjectOf(found).environment)) return;
  confirmed(found, echo ?? '');
}

/** @throws Problem unless the name is repeated exactly */
export function confirmed<T extends Confirmable>(found: T, echo: string): T {
  if (echo === found.name) return found;
  throw new Problem(
    `confirm: found ${JSON.stringify(echo)}; the service is named ${JSON.stringify(found.name)}${found.metadata.environment === 'PROD' ? ', and is PROD' : ''}`,
    'make sure with the user that it is this service, then call again with confirm set to its name',
  );
}
