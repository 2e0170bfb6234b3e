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
  CLIENT_CAPABILITIES_META_KEY,
  fromJsonSchema,
  inputRequired,
  inputResponse,
  McpServer,
  type CallToolResult,
  type InputRequiredResult,
  type ServerContext,
  type ToolAnnotations,
} from '@modelcontextprotocol/server';
import { AsyncLocalStorage } from 'node:async_hooks';
import { Type, type Static, type TObject } from 'typebox';
import { explain, Problem } from './problem.ts';

type Answered = CallToolResult | InputRequiredResult;

/** A tool, for other names of it. */
export type KnownTool = {
  annotations: ToolAnnotations;
  /** Checks the arguments, as the tool under its own name does. */
  run: (args: unknown, context: ServerContext) => Promise<Answered>;
};

/** A server that knows its tools by their names. */
export class ToolServer extends McpServer {
  readonly tools = new Map<string, KnownTool>();
}

/** The state of one call of a tool. */
type Call = {
  tool: string;
  /** Warnings of the API in its answers. */
  warnings: string[];
  /** Whether the client can ask its user, and what the user has answered. */
  canAsk: boolean;
  answers: Record<string, unknown> | undefined;
};
const calls = new AsyncLocalStorage<Call>();

/** Adds a warning to the result of the tool that is running: the agent must not miss it. */
export function noteWarning(text: string): void {
  calls.getStore()?.warnings.push(text);
}

/** The result of a tool: a line for people, and data for programs. */
export type Outcome = { summary: string; data: Record<string, unknown> };

/**
 * read: changes nothing. make: each call creates something. change: repeating the call changes
 * nothing more. destroy: sessions end or data is deleted. write: the same, but each call has
 * another effect.
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
  write: {
    readOnlyHint: false,
    destructiveHint: true,
    idempotentHint: false,
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
  server: ToolServer,
  name: string,
  { title, description, kind, input }: Declaration<Input>,
  work: (args: Static<Input>, signal: AbortSignal) => Promise<Outcome>,
): void {
  const schema = fromJsonSchema<Static<Input>>(input);
  const annotations = { title, ...HINTS[kind] };
  const run = async (args: Static<Input>, context: ServerContext): Promise<Answered> => {
    const call: Call = {
      tool: name,
      warnings: [],
      canAsk: canAsk(server, context),
      answers: context.mcpReq.inputResponses,
    };
    try {
      const { summary, data } = await calls.run(call, () => work(args, context.mcpReq.signal));
      return result({ summary: [summary, ...call.warnings].join(' Warning: '), data });
    } catch (error) {
      if (error instanceof UserAsked) return error.request;
      if (error instanceof DryRunError) return result(dryRun(error));
      return failure(error);
    }
  };
  server.registerTool(name, { title, description, inputSchema: schema, annotations }, run);
  server.tools.set(name, {
    annotations,
    run: async (args, context) => {
      const checked = await schema['~standard'].validate(args);
      if (checked.issues === undefined) return run(checked.value, context);
      const why = checked.issues.map(({ message }) => message).join('; ');
      return failure(new Problem(why, 'correct the arguments'));
    },
  });
}

function failure(error: unknown): CallToolResult {
  const problem = explain(error);
  const summary = `${problem.code}: ${problem.message}. Next: ${problem.try_next}.`;
  return { ...result({ summary, data: problem }), isError: true };
}

/** Whether the client declares that it shows forms to its user (elicitation). */
function canAsk(server: ToolServer, { mcpReq }: ServerContext): boolean {
  const declared: unknown =
    mcpReq.envelope === undefined
      ? server.server.getClientCapabilities()
      : Reflect.get(mcpReq.envelope, CLIENT_CAPABILITIES_META_KEY);
  const elicitation: unknown =
    typeof declared === 'object' && declared !== null
      ? Reflect.get(declared, 'elicitation')
      : undefined;
  if (typeof elicitation !== 'object' || elicitation === null) return false;
  // An empty declaration means forms.
  return 'form' in elicitation || !('url' in elicitation);
}

/** Ends a tool until the client has asked its user, and calls the tool again with the answer. */
class UserAsked extends Error {
  readonly request: InputRequiredResult;

  constructor(request: InputRequiredResult) {
    super('the user is asked');
    this.request = request;
  }
}

/**
 * Lets the user of the client type the name of a service, if the client can ask. The agent cannot
 * answer: the answer is no argument of the tool. Called before anything has an effect.
 *
 * @throws UserAsked, which addTool sends; Problem DECLINED
 */
export function askUser({ name, service_id: id }: Confirmable & { service_id: string }): void {
  const call = calls.getStore();
  if (call === undefined || !call.canAsk) return;
  const key = `${call.tool} ${id}`;
  const answer = inputResponse(call.answers, key);
  if (answer.kind === 'elicit' && answer.action === 'accept' && answer.content?.['name'] === name)
    return;
  if (answer.kind === 'elicit')
    throw new Problem(
      answer.action === 'accept'
        ? `the user has typed another name than ${JSON.stringify(name)}`
        : `the user has declined ${call.tool} of ${JSON.stringify(name)}`,
      'do not call again; ask the user what to do instead',
      'DECLINED',
    );
  const shown = makeVisible(name);
  const request = inputRequired.elicit({
    message:
      `The agent calls ${call.tool} for the service ${shown} (${id}), which is PROD. ` +
      'Type its name to allow it.',
    requestedSchema: {
      type: 'object',
      properties: { name: { type: 'string', title: 'Name of the service' } },
      required: ['name'],
    },
  });
  throw new UserAsked(inputRequired({ inputRequests: { [key]: request } }));
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
  description: 'its name or service_id; the id, if several have the name',
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

/**
 * Where the action needs it, the name of a PROD service must be repeated, and a client that can
 * asks its user.
 *
 * @throws Problem, UserAsked
 */
export function confirmedForProd(
  action: Action,
  found: Confirmable & { service_id: string } & Parameters<typeof subjectOf>[0],
  { confirm: echo, dry_run: dryRun }: Changing,
): void {
  if (dryRun === true || !asksForName(action, subjectOf(found).environment)) return;
  confirmed(found, echo ?? '');
  askUser(found);
}

/** @throws Problem unless the name is repeated exactly */
export function confirmed<T extends Confirmable>(found: T, echo: string): T {
  if (echo === found.name) return found;
  throw new Problem(
    `confirm: found ${JSON.stringify(echo)}; the service is named ${JSON.stringify(found.name)}` +
      (found.metadata.environment === 'PROD' ? ', and is PROD' : ''),
    'make sure with the user that it is this service, then call again with confirm set to its name',
  );
}
