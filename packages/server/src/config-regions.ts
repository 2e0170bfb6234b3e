/** Whether the regions of a machine fit together: codes, directories and ports. */
import { isAbsolute, relative } from 'node:path';
import { RESERVED_REGIONS, type FurtherRegion } from './settings.ts';

/** The settings of the first region, which further ones must not share. */
type First = Readonly<{ home: string; port: number; portRange: readonly [number, number] }>;

/** @returns a line for each problem, all of which stop a start; null: there is none */
export function problemOfRegions(regions: readonly FurtherRegion[], first: First): string | null {
  const problems = regions.flatMap((region, index) => {
    const others = regions.slice(0, index);
    return [
      ...problemsOfCode(region, others),
      ...problemsOfDirectory(region, others, first.home),
      ...problemsOfPorts(region, others, first),
    ];
  });
  return problems.length === 0
    ? null
    : problems.map((problem) => `HOWDAH_REGIONS: ${problem}`).join('\n');
}

function problemsOfCode({ code }: FurtherRegion, others: readonly FurtherRegion[]): string[] {
  if (RESERVED_REGIONS.includes(code))
    return [`found the code ${code}, which is taken; choose another one`];
  return others.some((other) => other.code === code)
    ? [`found the code ${code} twice; choose another one for one of the regions`]
    : [];
}

function problemsOfDirectory(
  { code, directory }: FurtherRegion,
  others: readonly FurtherRegion[],
  home: string,
): string[] {
  const places = [
    { name: 'HOWDAH_HOME', path: home },
    ...others.map((other) => ({ name: other.code, path: other.directory })),
  ];
  return places
    .filter(({ path }) => isWithin(directory, path) || isWithin(path, directory))
    .map(
      ({ name, path }) =>
        `${directory} of ${code} and ${path} of ${name} are not apart; ` +
        'choose a directory outside of the other',
    );
}

/** Whether a path is that of a directory, or below it. */
function isWithin(path: string, directory: string): boolean {
  const way = relative(directory, path);
  return way !== '..' && !way.startsWith('../') && !isAbsolute(way);
}

function problemsOfPorts(
  { code, portRange: [from, to] }: FurtherRegion,
  others: readonly FurtherRegion[],
  { port, portRange }: First,
): string[] {
  const taken = [
    { name: 'HOWDAH_PORT', range: [port, port] as const },
    { name: 'HOWDAH_PORT_RANGE', range: portRange },
    ...others.map((other) => ({ name: other.code, range: other.portRange })),
  ];
  return taken
    .filter(({ range: [first, last] }) => from <= last && first <= to)
    .map(
      ({ name, range }) =>
        `the ports ${from}-${to} of ${code} overlap with ${[...new Set(range)].join('-')} of ` +
        `${name}; change one of them`,
    );
}
