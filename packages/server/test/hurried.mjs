// Shortens the rounds in which the control plane that is started with it (NODE_OPTIONS=--import …) looks at all its services, from 30 s to 3 s: deaths that
// nobody reported, warnings, VPCs, verifications that are due. For tests of what is seen, not of when. It works on the text of the bundle, so that the
// product has no switch for it.
import { register } from 'node:module';

const hooks = `
  export async function load(url, context, next) {
    const loaded = await next(url, context);
    if (!url.endsWith('/packages/server/dist/main.js')) return loaded;
    let rounds = 0;
    const source = loaded.source.toString().replace(/\\b((?:DEATHS|DUE|LOOK)_EVERY_MS\\d*) = 3e4;/g, (_, name) => {
      rounds += 1;
      return name + ' = 3e3;';
    });
    if (rounds !== 4) throw new Error('rounds to shorten: found ' + rounds + '; expected 4');
    return { ...loaded, source };
  }`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);
