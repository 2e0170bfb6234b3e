// Changes the text of the bundle of a control plane before it starts (NODE_OPTIONS=--import …), so
// that the product has no switch for it.
import { register } from 'node:module';

/**
 * @param {readonly (readonly [pattern: string, replacement: string, count: number])[]} edits a
 *   regular expression, what takes its place ($1 is its first group), and how often it must occur:
 *   a bundle without it is an error
 */
export function editBundle(edits) {
  const hooks = `
    const edits = ${JSON.stringify(edits)};
    export async function load(url, context, next) {
      const loaded = await next(url, context);
      if (!url.split('?')[0].endsWith('/packages/server/dist/main.js')) return loaded;
      let source = loaded.source.toString();
      for (const [pattern, replacement, count] of edits) {
        const place = new RegExp(pattern, 'g');
        const found = [...source.matchAll(place)].length;
        if (found !== count)
          throw new Error(
            'the bundle has ' + found + ' places for ' + pattern + '; expected ' + count);
        source = source.replace(place, replacement);
      }
      return { ...loaded, source };
    }`;
  register(`data:text/javascript,${encodeURIComponent(hooks)}`);
}
