/**
 * The server's code, loaded when a command needs it: it is a bundle of its own, so that `howdah service list` does not read it.
 */
export async function loadServer(): Promise<typeof import('@howdah/server')> {
  const bundle: string = new URL('../../server/dist/main.js', import.meta.url).href;
  return import(bundle);
}
