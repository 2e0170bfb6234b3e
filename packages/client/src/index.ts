/**
 * The typed client of the API: types generated from the OpenAPI document, a thin hand around them. Runs in Node and in browsers;
 * what needs files or the environment is in `@howdah/client/node`.
 */
export { createClient, type ClientOptions, type HowdahClient, type Schemas } from './client.ts';
export { DryRunError, errorOf, HowdahError, NoAnswerError } from './errors.ts';
export { followEvents, type FollowOptions } from './events.ts';
export { waitFor, WaitError, type Target, type WaitOptions } from './wait.ts';
