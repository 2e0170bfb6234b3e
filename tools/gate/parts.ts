/** The parts of gate B, in their order, and which of them have to run. */
import type { GreenRuns } from './green-runs.ts';
import { KUBERNETES_PATHS } from './kubernetes.ts';
import type { Step } from './steps.ts';

export type Part = Step & {
  /** git's pathspecs of the files whose change makes the part run again. */
  readonly dependsOn: readonly string[];
};

const SHARDS = 8;
const EVERYTHING = ['.'];
/**
 * The files of an installation, of its tests and what they compare with it, without the unit tests
 * and the other projects.
 */
const SYSTEM = [
  'packages',
  'plugins',
  ':(exclude)packages/server/test-*',
  ':(exclude,glob)packages/*/src/**/*.test.ts',
  'howdah',
  'package.json',
  'package-lock.json',
  'vitest.config.ts',
  'tools/build',
  'tools/test',
  'tools/gate/test-run.ts',
  'tools/gate/verdict.ts',
  'tools/debian13',
  'deploy',
  'openapi',
  'docs',
  ':(exclude)docs/decisions',
  ':(exclude)docs/reports',
];
const TOUR = [...SYSTEM, 'README.md'];
const RELEASE = [...TOUR, 'tools/release', 'CHANGELOG.md'];

const DEBIAN = 'tools/debian13/run';
const filesOf = (names: string): string =>
  names.replaceAll(/[^ ]+/g, (name) => `packages/server/test/${name}`);
/** Tests that depend on privileges. */
const UNPRIVILEGED = filesOf(
  'cli conformance crash-power lifecycle single-project start types vpc',
);
/** Tests that depend on PostgreSQL, PgBouncer, file systems and the disk of this machine. */
const HERE = filesOf('forks.test ha- lifecycle pooler.test start store types');

/** The launcher's `test` installs what a soak needs too. */
const soak = (name: string, options: string): Part => ({
  name: `soak-${name}`,
  minutes: 40,
  command:
    `${DEBIAN} sh -c './howdah test --all --project=unit tools/gate && ` +
    `npm run soak:${name} -- ${options}'`,
  dependsOn: SYSTEM,
});

/** @param seed of the soaks */
export function partsOf(seed: number): Part[] {
  const part = (
    name: string,
    minutes: number,
    dependsOn: readonly string[],
    command: string,
  ): Part => ({ name, minutes, command, dependsOn });
  const systemTests = `${DEBIAN} ./howdah test --all --project=system`;
  const repositories = [...SYSTEM, 'packages/server/test-repositories', 'tools/repository-servers'];
  return [
    part('check', 20, EVERYTHING, 'npm run check'),
    part('unit', 20, EVERYTHING, `${DEBIAN} ./howdah test --all --project=unit`),
    ...Array.from({ length: SHARDS }, (_, index) => {
      const shard = `${index + 1}/${SHARDS}`;
      return part(`system-${index + 1}`, 90, SYSTEM, `${systemTests} --shard=${shard}`);
    }),
    part(
      'system-user',
      30,
      SYSTEM,
      `${DEBIAN} --user dev ./howdah test --project=system ${UNPRIVILEGED}`,
    ),
    part('system-here', 40, SYSTEM, `./howdah test --project=system ${HERE}`),
    // /srv of the fresh Debian does not clone by reference, as /var/tmp does.
    part(
      'volumes',
      30,
      SYSTEM,
      `${DEBIAN} env TMPDIR=/srv ./howdah test --all --project=system ${filesOf('store.test.ts')}`,
    ),
    part(
      'repositories',
      60,
      repositories,
      `${DEBIAN} --with "$(tools/repository-servers/build.sh)" ` +
        './howdah test --all --project repositories',
    ),
    part(
      'kubernetes',
      120,
      [...repositories, ...KUBERNETES_PATHS],
      'tools/kube-rig/run npx vitest run --project kubernetes',
    ),
    soak('crash', `--minutes 5 --seed ${seed}`),
    soak('failover', `--rounds 20 --seed ${seed}`),
    soak('hostile', `--minutes 5 --seed ${seed}`),
    part(
      'release',
      60,
      RELEASE,
      `${DEBIAN} sh -c 'apt-get -qq -y install postgresql-client && tools/release/try.sh'`,
    ),
    part('release-user', 40, RELEASE, `${DEBIAN} --user dev tools/release/try.sh npm`),
    part('image', 60, RELEASE, 'tools/release/try-image.sh'),
    part('tour', 20, TOUR, `${DEBIAN} tools/debian13/tour.sh`),
    part('tour-user', 20, TOUR, `${DEBIAN} --user dev tools/debian13/tour.sh`),
    part('planted', 600, EVERYTHING, 'npm run planted'),
  ];
}

export type Selection = Readonly<{ from?: string | undefined; only?: string | undefined }>;
/** `green`: the commit of the green run; null: run it. */
export type Planned = Readonly<{ part: Part; green: string | null }>;

/**
 * @param fingerprints of the files of each part, by its name
 * @returns the parts that are selected. A part that `only` names runs also when it is green.
 */
export function planOf(
  parts: readonly Part[],
  { from, only }: Selection,
  runs: GreenRuns,
  fingerprints: Readonly<Partial<Record<string, string>>>,
): Planned[] {
  const names = parts.map(({ name }) => name);
  for (const name of [from, only])
    if (name !== undefined && !names.includes(name))
      throw new Error(`no part is named ${name}; the parts are: ${names.join(', ')}`);
  const first = from === undefined ? 0 : names.indexOf(from);
  return parts
    .filter(({ name }, index) => index >= first && (only === undefined || name === only))
    .map((part) => {
      const run = runs[part.name];
      const isGreen = only === undefined && run?.fingerprint === fingerprints[part.name];
      return { part, green: isGreen ? (run?.commit ?? null) : null };
    });
}
