/**
 * Validators and serializers that are made when a call first needs them. There are some hundreds, of which most installations need a few
 * for days: to make all of them was half of a start of the control plane (bench/up.ts).
 */
import { AjvCompiler } from '@fastify/ajv-compiler';
import { SerializerSelector } from '@fastify/fast-json-stringify-compiler';
import { NAMED_SCHEMAS } from '@howdah/contract';
import type { App } from './context.ts';

export function compileOnFirstUse(app: App): void {
  const named = Object.fromEntries(NAMED_SCHEMAS.map((schema) => [schema.$id, schema]));
  // Fastify's own choice silently turns 5 and null into strings, and drops unknown fields. The
  // schemas are our own and checked by our types, so the meta-schema is not needed.
  const customOptions = {
    coerceTypes: false,
    removeAdditional: false,
    verbose: true,
    validateSchema: false,
    // For generators of clients; without it Ajv refuses the schema of a query that has it.
    keywords: ['x-go-name', 'x-documented'],
  };
  const validatorOf = AjvCompiler()(named, { customOptions });
  const serializerOf = SerializerSelector()(named);

  app.setValidatorCompiler((definition) => {
    let made: ReturnType<typeof validatorOf> | undefined;
    return (data) => {
      made ??= validatorOf(definition);
      return made(data) === true || { error: made.errors ?? [] };
    };
  });
  app.setSerializerCompiler((definition) => {
    let made: ReturnType<typeof serializerOf> | undefined;
    return (document) => (made ??= serializerOf({ httpStatus: '', ...definition }))(document);
  });
}
