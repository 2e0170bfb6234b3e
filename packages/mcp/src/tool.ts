/** How a tool is declared: one shape of results, one of errors, and hints that clients ask their users by. */
import { DryRunError } from '@howdah/client';
import { makeVisible, visibleJson } from '@howdah/contract';
import {
  fromJsonSchema,
  type CallToolResult,
  type McpServer,
  type ToolAnnotations,
} from '@modelcontextprotocol/server';
import { Type, type Static, type TObject } from 'typebox';
import { explain, Problem } from './problem.ts';

/** What a tool answers: a line for people, and the same and more for programs. */
export type Outcome = { summary: string; data: Record<string, unknown> };

/** read: changes nothing. make: something new with each call. change: the same call again changes nothing more. destroy: sessions or data end. */
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
  /** What it does, what that costs, and what to try first. */
  description: string;
  kind: keyof typeof HINTS;
  input: Input;
};

/** @param work gets arguments that the schema has checked */
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
      try {
        return result(await work(args, mcpReq.signal));
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

/** Text for clients that show nothing else: the line, and the data as JSON. */
function result({ summary, data }: Outcome): CallToolResult {
  // Texts of tenants must not hold instructions that only the agent sees.
  const json = visibleJson(JSON.stringify(data));
  return {
    content: [{ type: 'text', text: `${makeVisible(summary)}\n${json}` }],
    structuredContent: JSON.parse(json),
  };
}

function dryRun({ answer: { operation } }: DryRunError): Outcome {
  const steps =
    operation === null
      ? 'nothing: it is so already, or takes no operation'
      : `${operation.kind}: ${operation.steps.join(', ')}`;
  return { summary: `Nothing was done. It would do ${steps}.`, data: { dry_run: true, operation } };
}

// ── arguments that many tools have ───────────────────────────────────────────────────────────────────────────────

export const closed = { additionalProperties: false } as const;
export const service = Type.String({
  minLength: 1,
  maxLength: 128,
  description: 'name or service_id',
});

/** Of what changes something. */
export const changing = {
  dry_run: Type.Optional(
    Type.Boolean({
      description: 'true: nothing is done; the answer says what would be, step by step',
    }),
  ),
  idempotency_key: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 255,
      description:
        'call again with the same one when you do not know whether a call got through: it is made once. Default: a new one each call',
    }),
  ),
};
export type Changing = { dry_run?: boolean; idempotency_key?: string };

/** The query and the headers of a change. */
export const askedAs = ({ dry_run, idempotency_key }: Changing) => ({
  query: dry_run === true ? ({ dry_run: 'true' } as const) : {},
  header: idempotency_key === undefined ? {} : { 'Idempotency-Key': idempotency_key },
});

export const wait = {
  wait_seconds: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: 300,
      default: 45,
      description:
        'how long to wait until it is done; 0: answer at once, and use wait_for_operation',
    }),
  ),
};
export const WAIT_SECONDS = 45;

/** The name again, so that nothing is ended by a slip. */
export const confirm = Type.String({
  description: "the service's name, exactly, to say that you mean this one; ask the user before",
});

/** What confirm names: a service, or a deleted one. */
export type Confirmable = { name: string; metadata: { environment: string } };

/** @throws Problem unless the name was repeated */
export function confirmed<T extends Confirmable>(found: T, echo: string): T {
  if (echo === found.name) return found;
  throw new Problem(
    `confirm: found ${JSON.stringify(echo)}; the service is named ${JSON.stringify(found.name)}${found.metadata.environment === 'PROD' ? ', and is PROD' : ''}`,
    'make sure with the user that it is this service, then call again with confirm set to its name',
  );
}
