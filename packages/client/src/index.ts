/**
 * The typed client of the API: types generated from the OpenAPI document, and a thin layer around
 * them. It runs in Node and in browsers; `@howdah/client/node` has the parts that
 * need files or the environment.
 */
export { createClient, type ClientOptions, type HowdahClient, type Schemas } from './client.ts';
export { DryRunError, errorOf, HowdahError, isUntrusted, NoAnswerError } from './errors.ts';
export { followEvents, type FollowOptions } from './events.ts';
export { waitFor, WaitError, type Target, type WaitOptions } from './wait.ts';
