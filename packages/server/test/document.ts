/**
 * The committed OpenAPI document, as tests read it: every operation, and whether an answer is one
 * that it promises.
 */
import { readFileSync } from 'node:fs';
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';

export type Schema = Readonly<Record<string, unknown>>;
type Parameter = { name: string; in: string; required?: boolean; schema: Schema };
type Operation = {
  operationId: string;
  parameters?: Parameter[];
  requestBody?: { content: Record<string, { schema: Schema }> };
  responses: Record<string, { content?: Record<string, object> }>;
};
type Document = { paths: Record<string, Record<string, Operation>> };

export const DOCUMENT: Document = JSON.parse(
  readFileSync(new URL('../../../openapi/openapi.json', import.meta.url), 'utf8'),
);

export type Route = {
  operationId: string;
  method: string;
  path: string;
  /** The names in the path, in their order. */
  names: readonly string[];
  query: readonly Parameter[];
  body: Schema | null;
  /** Whether it changes something. */
  changes: boolean;
  /** The query with which a call is answered in full: a stream of events would not end. */
  ending: string;
};

export const ROUTES: readonly Route[] = Object.entries(DOCUMENT.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, { operationId, parameters = [], requestBody }]) => ({
    operationId,
    method: method.toUpperCase(),
    path,
    names: [...path.matchAll(/\{([a-z_]+)\}/g)].map((match) => match[1] ?? ''),
    query: parameters.filter((parameter) => parameter.in === 'query'),
    body: requestBody?.content['application/json']?.schema ?? null,
    changes: parameters.some(({ name }) => name === 'dry_run'),
    ending: parameters.some(({ name }) => name === 'follow') ? 'follow=false' : '',
  })),
);

/** The status of an operation's success; 200 is also that of a dry run. */
export function successOf(operationId: string): number {
  const found = Object.values(DOCUMENT.paths)
    .flatMap((methods) => Object.values(methods))
    .find((operation) => operation.operationId === operationId);
  if (found === undefined) throw new Error(`no operation is called ${operationId}`);
  return Math.max(
    ...Object.keys(found.responses)
      .map(Number)
      .filter((status) => status < 300),
  );
}

export const ajv = new Ajv2020({ strict: false, allErrors: true });
addFormats.default(ajv);
ajv.addSchema(DOCUMENT, 'api');

const pointer = (part: string): string =>
  encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1'));
const validators = new Map<string, (body: unknown) => string | null>();

/** The fault of an answer; null: it is one that the document allows. @param text its body */
export function problemOf(
  { path, method, operationId }: Pick<Route, 'path' | 'method' | 'operationId'>,
  status: number,
  text: string,
): string | null {
  const name = `${operationId} ${status}`;
  let validate = validators.get(name);
  if (validate === undefined) {
    validate = validatorOf(path, method.toLowerCase(), status, name);
    validators.set(name, validate);
  }
  let body: unknown = '';
  try {
    body = text === '' || !isJson(path, method, status) ? '' : JSON.parse(text);
  } catch {
    return `${name}: not JSON: ${text.slice(0, 200)}`;
  }
  return validate(body);
}

function isJson(path: string, method: string, status: number): boolean {
  const content = DOCUMENT.paths[path]?.[method.toLowerCase()]?.responses[status]?.content;
  return content === undefined || 'application/json' in content;
}

function validatorOf(
  path: string,
  method: string,
  status: number,
  name: string,
): (body: unknown) => string | null {
  const response = DOCUMENT.paths[path]?.[method]?.responses[status];
  if (response === undefined) return () => `${name} is not documented`;
  if (response.content === undefined) return (body) => (body === '' ? null : `${name} has a body`);
  // Streams: their tests look into them.
  if (!('application/json' in response.content)) return () => null;
  const check = ajv.compile({
    $ref:
      `api#/paths/${pointer(path)}/${method}` +
      `/responses/${status}/content/application~1json/schema`,
  });
  return (body) =>
    check(body)
      ? null
      : `${name}: ${ajv.errorsText(check.errors)} in ${JSON.stringify(body).slice(0, 400)}`;
}
