import { defineConfig } from 'vitest/config';

// Unit tests stand beside what they test and start nothing; whole-system tests start an installation each.
export default defineConfig({
  test: {
    projects: [
      { test: { name: 'unit', include: ['packages/*/src/**/*.test.ts'], sequence: { groupOrder: 0 } } },
      {
        test: {
          name: 'system',
          include: ['packages/*/test/**/*.test.ts'],
          pool: 'forks',
          // Installations share the machine's cores: more at a time would only wait for each other.
          maxWorkers: 2,
          sequence: { groupOrder: 1 },
          // Deadlines of last resort: no test measures time, and a slow machine must pass as well.
          testTimeout: 300_000,
          hookTimeout: 300_000,
        },
      },
    ],
  },
});
