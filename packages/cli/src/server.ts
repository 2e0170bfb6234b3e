/**
 * The server's code, with the umask for the files that it makes, loaded only when a command needs
 * it. It is a separate bundle, so that `howdah service list` does not load it.
 */
export async function loadServer(): Promise<typeof import('@howdah/server')> {
  const bundle: string = new URL('../../server/dist/main.js', import.meta.url).href;
  const server: typeof import('@howdah/server') = await import(bundle);
  server.forgetForeign(process.env);
  server.setInstallationUmask();
  return server;
}
