import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { Summary } from './tools/test/summary.ts';

// Installations of tests take gigabytes, and /tmp may be memory: since Debian 13 it is.
const temporary = (process.env['TMPDIR'] ??= '/var/tmp');

/** The files that take minutes, the longest first. */
const LONG = [
  'races',
  'cli',
  'replica-sets-faults',
  'journeys-pages',
  'vpc-peering',
  'backups',
  'ha-failover',
  'ha-lag',
  'ha-changes',
  'forks-faults',
  'crash-creates',
  'faults',
  'api-shapes',
  'replica-sets-changes',
  'pooler',
  'hostile-sql',
  'import',
  'callers',
  'simulation-faults',
  'https',
  'forks',
  'mcp',
  'sandbox',
  'journeys',
  'vpc-separation',
  'store',
  'hostile',
  'conformance',
  'power-cut',
  'fuzz',
  'edges',
];

/**
 * Long files begin first, so that none of them is left over at the end; a clean clone has no times
 * of an earlier run to order by.
 */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification): number => {
      const place = LONG.findIndex((name) => moduleId.endsWith(`/test/${name}.test.ts`));
      return place === -1 ? LONG.length : place;
    };
    // oxlint-disable-next-line unicorn/no-array-sort -- vitest's own: it returns a new array
    return (await super.sort(files)).toSorted((a, b) => rank(a) - rank(b));
  }
}

// Unit tests are beside the code that they test and start nothing; each file of system tests starts
// an installation.
export default defineConfig({
  test: {
    sequence: { sequencer: LongestFirst },
    reporters: ['default', new Summary(temporary)],
    // A slow machine takes long to end the shared installations.
    teardownTimeout: 600_000,
    // The launcher leaves these out unless it is run with --all. A slow test has a similar one that
    // is not slow.
    tags: [
      {
        name: 'slow',
        description: 'runs with ./howdah test --all only',
        timeout: 1_200_000,
      },
      { name: 'promise', description: 'a promise that every engine keeps, on Kubernetes' },
      { name: 'journey', description: 'what users of a region on Kubernetes do, in their order' },
    ],
    projects: [
      {
        test: {
          name: 'unit',
          include: ['packages/*/src/**/*.test.ts', 'tools/*/*.test.ts'],
          // One process runs many files, and reads each module once: half the time.
          isolate: false,
          // Some wait for servers of their own.
          maxWorkers: availableParallelism() + 1,
          // As for system tests: no test measures time.
          testTimeout: 120_000,
          hookTimeout: 120_000,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          name: 'system',
          include: ['packages/*/test/**/*.test.ts'],
          globalSetup: ['packages/server/test/shared-end.ts'],
          pool: 'forks',
          // One process runs many files, reads each module once, and has an installation to share.
          isolate: false,
          // Installations wait for clocks and disks some of the time.
          maxWorkers: availableParallelism() + 1,
          sequence: { groupOrder: 1 },
          // Deadlines of last resort: no test measures time, and a slow machine must pass as well.
          testTimeout: 900_000,
          hookTimeout: 900_000,
        },
      },
      {
        // Repositories on real servers: CONTRIBUTING.md has the command.
        test: {
          name: 'repositories',
          include: ['packages/*/test-repositories/**/*.test.ts'],
          globalSetup: ['packages/server/test-repositories/setup.ts'],
          pool: 'forks',
          // These tests wait for servers that do not answer most of the time.
          maxWorkers: 3,
          sequence: { groupOrder: 3 },
          testTimeout: 900_000,
          hookTimeout: 900_000,
        },
      },
      {
        // On a real Kubernetes cluster: tools/kube-rig/run npx vitest run --project kubernetes
        test: {
          name: 'kubernetes',
          include: ['packages/*/test-kubernetes/**/*.test.ts', 'tools/kube-rig/test/*.test.ts'],
          globalSetup: ['tools/kube-rig/test/setup.ts'],
          pool: 'forks',
          maxWorkers: 1,
          sequence: { groupOrder: 2 },
          testTimeout: 900_000,
          hookTimeout: 900_000,
        },
      },
    ],
  },
});
