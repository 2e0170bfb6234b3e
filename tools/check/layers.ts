/**
 * The layers of the code, and which of them may import which.
 *
 * docs/architecture.md shows this table; `npm run check` compares both, and dependency-cruiser
 * enforces it. Imports of types count like all others.
 *
 * System tests import from `src` in files named `probe.ts` only, so that a move of a source file
 * changes few of their lines.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ICruiseResult, IForbiddenRuleType } from 'dependency-cruiser';

export type Layer = {
  readonly name: string;
  readonly holds: string;
  /** Which files belong to it, as a regular expression; no file belongs to two layers. */
  readonly path: string;
  /** Names of the layers that it may import, beside itself. */
  readonly imports: readonly string[];
};

/** Paths from the root of the clone; `isLate`: by `import()`, while the program runs. */
export type Import = { readonly from: string; readonly to: string; readonly isLate: boolean };

/** `found` is an import, `from → to`, or a cycle, `a → b → a`. */
export type Violation = { readonly rule: string; readonly found: string };

const SERVER = 'packages/server/src';
const TESTS = '\\.(test|testing)\\.tsx?$';

export const LAYERS: readonly Layer[] = [
  {
    name: 'contract',
    holds: 'schemas, statuses, actions, roles, sizes, errors, ids: data and pure functions',
    path: '^packages/contract/src/',
    imports: [],
  },
  {
    name: 'lib',
    holds: 'files, durability, processes, networks as numbers, TLS, log: knows nothing of services',
    path: `^${SERVER}/lib/`,
    imports: ['contract'],
  },
  {
    name: 'repository',
    holds: 'places for backups off this machine, by pgBackRest: knows nothing of services',
    path: `^${SERVER}/repository/`,
    imports: ['contract', 'lib'],
  },
  {
    name: 'TLS gateway',
    holds: 'a program of its own, which connects clients in a cluster to services by their names',
    path: `^${SERVER}/tls-gateway/`,
    imports: ['contract', 'lib'],
  },
  {
    name: 'engine interface',
    holds: '`engine/*.ts`: what the control plane asks of an engine, in facets; the regions',
    path: `^${SERVER}/engine/[^/]+$`,
    imports: ['contract', 'lib', 'config'],
  },
  {
    name: 'config',
    holds:
      '`settings.ts`, `config.ts`, `paths.ts`: the settings, read once, ' +
      'and the places of our own files',
    path: `^${SERVER}/(settings|config|paths)\\.ts$`,
    imports: ['contract', 'lib'],
  },
  {
    name: 'domain',
    holds: 'rules without input or output: pure functions of what they are given',
    path: `^${SERVER}/domain/`,
    imports: ['contract', 'lib', 'repository', 'engine interface'],
  },
  {
    name: 'store',
    holds: 'every SQL statement on the metadata database, as functions',
    path: `^${SERVER}/store/`,
    imports: ['contract', 'lib', 'engine interface', 'config', 'domain'],
  },
  {
    name: 'events',
    holds: 'event streams and webhooks',
    path: `^${SERVER}/events/`,
    imports: ['contract', 'lib', 'store'],
  },
  {
    name: 'export',
    holds: 'samples and alerts that are sent to receivers of users',
    path: `^${SERVER}/export/`,
    imports: ['contract', 'lib', 'domain', 'store', 'events'],
  },
  {
    name: 'services',
    holds: 'check the rules, one transaction, notify; one file for each resource',
    path: `^${SERVER}/services/`,
    imports: [
      'contract',
      'lib',
      'repository',
      'engine interface',
      'config',
      'domain',
      'store',
      'events',
      'export',
    ],
  },
  {
    name: 'api',
    holds: 'routes, keys and roles, errors, metrics, OpenAPI, the console and its sessions',
    path: `^${SERVER}/api/`,
    imports: [
      'contract',
      'lib',
      'engine interface',
      'config',
      'domain',
      'store',
      'events',
      'export',
      'services',
    ],
  },
  {
    name: 'reconcile',
    holds: 'the loop and its rounds: moves, backups, sleep, leases, alerts, expiry, VPCs, …',
    path: `^${SERVER}/reconcile/`,
    imports: ['contract', 'lib', 'repository', 'engine interface', 'config', 'domain', 'store'],
  },
  {
    name: 'installation',
    holds:
      '`installation.ts`, `metadata-record.ts`: the files by which the command line finds a ' +
      'control plane, its regions and its metadata database',
    path: `^${SERVER}/(installation|metadata-record)\\.ts$`,
    imports: ['contract', 'lib', 'config'],
  },
  {
    name: 'engine/statements',
    holds: 'statements that users send: sessions that only read, on servers of any engine',
    path: `^${SERVER}/engine/statements/`,
    imports: ['contract', 'engine interface'],
  },
  {
    name: 'engine/pooler',
    holds: 'connection poolers of any engine: their configuration, their role in a server',
    path: `^${SERVER}/engine/pooler/`,
    imports: ['contract', 'engine/statements'],
  },
  {
    name: 'engine/postgres',
    holds:
      'PostgreSQL, whatever runs it: sessions, roles, settings, WAL, replication, decisions; ' +
      'knows no machine',
    path: `^${SERVER}/engine/postgres/`,
    imports: [
      'contract',
      'lib',
      'engine interface',
      'domain',
      'engine/statements',
      'engine/pooler',
    ],
  },
  {
    name: 'engine/local/admin',
    holds: 'doctor, audit, backup of the control plane: commands that work without it',
    path: `^${SERVER}/engine/local/admin/`,
    imports: [
      'contract',
      'lib',
      'repository',
      'engine interface',
      'config',
      'domain',
      'store',
      'installation',
      'engine/postgres',
      'engine/local',
    ],
  },
  {
    name: 'engine/local',
    holds: 'servers on this machine',
    path: `^${SERVER}/engine/local/(?!admin/)`,
    imports: [
      'contract',
      'lib',
      'repository',
      'engine interface',
      'config',
      'domain',
      'engine/statements',
      'engine/pooler',
      'engine/postgres',
    ],
  },
  {
    name: 'engine/model',
    holds: 'services without PostgreSQL, with a script, a clock and faults',
    path: `^${SERVER}/engine/model/`,
    imports: ['contract', 'lib', 'engine interface', 'domain'],
  },
  {
    name: 'engine/kubernetes',
    holds: 'services as Clusters of CloudNativePG, on Kubernetes',
    path: `^${SERVER}/engine/kubernetes/`,
    imports: [
      'contract',
      'lib',
      'engine interface',
      'config',
      'domain',
      'engine/statements',
      'engine/pooler',
      'engine/postgres',
    ],
  },
  {
    name: 'engine/conformance',
    holds: 'the promises of the engine interface, as tests that every engine passes',
    path: `^${SERVER}/engine/conformance/`,
    imports: ['contract', 'lib', 'engine interface'],
  },
  {
    name: 'main',
    holds:
      '`main.ts`, `control-plane.ts`, `regions.ts`, …: ' +
      'config → store → engines → reconcilers → API; knows all parts',
    path:
      `^${SERVER}/(main|control-plane|regions|kubernetes-regions|run-region|recover|integrity|` +
      'startup|standby|first-key|metadata-database)\\.ts$',
    imports: [
      'contract',
      'lib',
      'TLS gateway',
      'repository',
      'engine interface',
      'config',
      'domain',
      'store',
      'events',
      'export',
      'services',
      'api',
      'reconcile',
      'installation',
      'engine/local/admin',
      'engine/local',
      'engine/model',
      'engine/kubernetes',
    ],
  },
  {
    name: 'testing',
    holds: '`packages/testing-node`: a database for each test, for vitest and node:test',
    path: '^packages/testing-node/src/',
    imports: ['client'],
  },
  {
    name: 'client',
    holds: '`packages/client`: the typed client, generated from `openapi/openapi.json`',
    path: '^packages/client/src/',
    imports: [],
  },
  {
    name: 'console',
    holds: '`packages/console`: the web console, bundled by `tools/build/console.js`',
    path: '^packages/console/src/',
    imports: ['client', 'contract'],
  },
  {
    name: 'mcp',
    holds: '`packages/mcp`: tools for agents, over standard input or HTTP',
    path: '^packages/mcp/src/',
    imports: ['client', 'contract'],
  },
  {
    name: 'cli',
    holds:
      '`packages/cli`: `howdah …`, a thin layer over the client; up and doctor load the server',
    path: '^packages/cli/src/',
    imports: ['client', 'contract', 'mcp', 'main'],
  },
];

/** The table of docs/architecture.md, one row for each layer. */
export function layerTable(): string {
  const rows = LAYERS.map(
    ({ name, holds, imports }) =>
      `| ${name} | ${holds} | ${imports.length === 0 ? 'nothing of ours' : imports.join(', ')} |`,
  );
  return ['| layer | what it holds | may import |', '|---|---|---|', ...rows].join('\n');
}

/** The table as rules of dependency-cruiser. */
export function layerRules(): IForbiddenRuleType[] {
  const pathsOf = (names: readonly string[]) =>
    LAYERS.filter(({ name }) => names.includes(name)).map(({ path }) => path);
  const all = LAYERS.map(({ path }) => path);
  return [
    { name: 'cycle', severity: 'error', from: { pathNot: TESTS }, to: { circular: true } },
    ...LAYERS.map(({ name, path, imports }): IForbiddenRuleType => ({
      name: `imports of ${name}`,
      severity: 'error',
      from: { path, pathNot: TESTS },
      to: { path: all, pathNot: pathsOf([name, ...imports]) },
    })),
    {
      name: 'file in no layer',
      severity: 'error',
      from: { path: '^packages/[^/]+/src/', pathNot: [TESTS, ...all] },
      to: {},
    },
    {
      name: 'import that leads nowhere',
      severity: 'error',
      from: { path: all },
      to: { path: '^(\\.|@howdah)', couldNotResolve: true },
    },
    {
      name: 'in a test folder only a file named probe.ts may import from src',
      severity: 'error',
      from: { path: '^packages/[^/]+/test', pathNot: '/probe\\.ts$' },
      // Relative imports: every file may import the exports of a package by its name.
      to: { path: '^packages/[^/]+/src/', dependencyTypes: ['local'] },
    },
  ];
}

/** @returns every import and cycle that the rules refuse, each once; `root` holds `packages` */
export function findViolations(root: string): Violation[] {
  const { summary } = runCruiser(root);
  const found = summary.violations.map(({ rule, from, to, cycle }) => ({
    rule: rule.name,
    found: cycle === undefined ? `${from} → ${to}` : ringOf(cycle.map(({ name }) => name)),
  }));
  const once = new Map(found.map((violation) => [violation.found, violation]));
  return [...once.values()].toSorted((a, b) => (a.found < b.found ? -1 : 1));
}

/** @returns each import of one file in `packages` by another, of types too, as their paths */
export function findImports(root: string): Import[] {
  return runCruiser(root).modules.flatMap(({ source, dependencies }) =>
    dependencies.map(({ resolved, dynamic }) => ({ from: source, to: resolved, isLate: dynamic })),
  );
}

function runCruiser(root: string): ICruiseResult {
  const scratch = mkdtempSync(join(tmpdir(), 'howdah-layers-'));
  try {
    const config = join(scratch, 'dependency-cruiser.json');
    writeFileSync(config, JSON.stringify({ forbidden: layerRules(), options: OPTIONS }));
    const args = [CRUISE, '--config', config, '--output-type', 'json', 'packages'];
    const json = execFileSync(process.execPath, args, {
      cwd: root,
      encoding: 'utf8',
      maxBuffer: 1 << 28,
    });
    const result: ICruiseResult = JSON.parse(json);
    // Without the compiler as a library the cruiser reads JavaScript only, and
    // finds nothing to refuse.
    if (!result.modules.some(({ source }) => /\.tsx?$/.test(source)))
      throw new Error(`${root}: no TypeScript modules found`);
    return result;
  } finally {
    rmSync(scratch, { recursive: true });
  }
}

const CRUISE = fileURLToPath(new URL('cruise.js', import.meta.url));
const OPTIONS = {
  parser: 'tsc',
  // Imports of types count like all others.
  tsPreCompilationDeps: true,
  doNotFollow: { path: 'node_modules' },
  exclude: { path: '(^|/)(dist|generated)/' },
  enhancedResolveOptions: {
    extensions: ['.ts', '.tsx', '.js', '.mjs'],
    exportsFields: ['exports'],
    conditionNames: ['import', 'types', 'node', 'default'],
  },
};

/** One text for a cycle, no matter which of its files it was found from. */
function ringOf(ring: readonly string[]): string {
  const first = ring.indexOf(ring.toSorted()[0] ?? '');
  const turned = [...ring.slice(first), ...ring.slice(0, first)];
  return [...turned, turned[0]].join(' → ');
}
