/**
 * The control plane of tests: `howdah up` as users have it, with the tuning of the test
 * (TEST_TUNING: a part of `Tuning` in JSON), and rounds that the test runs by a message.
 * The server's bundle is the one of users: `server.mjs` takes its place where the command line
 * imports it, and passes everything on.
 */
import { register } from 'node:module';

const BUNDLE = '/packages/server/dist/main.js';
const PLACE = new URL('server.mjs', import.meta.url).href;

const hooks = `
  export async function resolve(specifier, context, next) {
    const found = await next(specifier, context);
    return found.url.endsWith('${BUNDLE}') ? { ...found, url: '${PLACE}' } : found;
  }`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);

await import(new URL('../../cli/dist/howdah.js', import.meta.url).href);
