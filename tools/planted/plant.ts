/** A planted defect: what it breaks, the edits that make it, and the tests that must find it. */

export const PROMISES = [
  'P1',
  'P2',
  'P3',
  'P4',
  'P5',
  'P6',
  'P7',
  'P8',
  'P9',
  'P9b',
  'P10',
  'P11',
  'P12',
  'P13',
  'P14',
] as const;

export const CAPABILITIES = [
  'alerts',
  'adopt',
  'allow lists',
  'audit log',
  'backups',
  'console',
  'create',
  'delete',
  'events',
  'exporters',
  'extensions',
  'failover',
  'fencing',
  'fork',
  'gateway',
  'idempotency keys',
  'import',
  'keys and roles',
  'Kubernetes',
  'leases',
  'masking of secrets',
  'MCP',
  'moves',
  'passwords',
  'peering',
  'PITR fork',
  'pooler',
  'purge',
  'quotas',
  'read replica sets',
  'repositories',
  'resize',
  'sleep',
  'statements',
  'stop and start',
  'switchover',
  'TLS',
  'undelete',
  'upgrade',
  'verification',
  'VPC',
  'webhooks',
] as const;

/** A section of docs/promises.md, or a capability. */
export type Broken = (typeof PROMISES)[number] | (typeof CAPABILITIES)[number];

/** `from` occurs exactly once in the file, so that an edit does not depend on line numbers. */
export type Edit = { readonly file: string; readonly from: string; readonly to: string };

/** A test file; `name`: only the tests whose names match this regular expression. */
export type TestHint = { readonly file: string; readonly name?: string };

/** Gate A is what every change runs, gate B what a release runs. */
type CaughtBy =
  | { readonly gate: 'A'; readonly tests: readonly TestHint[] }
  | { readonly gate: 'B'; readonly tests: readonly TestHint[]; readonly reason: string };

export type Plant = {
  readonly name: string;
  readonly breaks: readonly Broken[];
  /** The consequence for a user. */
  readonly effect: string;
  readonly edits: readonly Edit[];
  readonly caughtBy: CaughtBy;
};

/** @returns the text with the edit; `plant` names it in an error */
export function applyEdit(plant: string, { file, from, to }: Edit, text: string): string {
  const found = text.split(from).length - 1;
  if (found !== 1)
    throw new Error(
      `plant ${plant}: its anchor occurs ${found} times in ${file}, instead of once: ${from}`,
    );
  // A replacement by a string would interpret `$`.
  return text.replace(from, () => to);
}

/** The files that a plant changes, with their new texts. */
export function applyEdits(
  { name, edits }: Plant,
  read: (file: string) => string,
): ReadonlyMap<string, string> {
  const texts = new Map<string, string>();
  for (const edit of edits)
    texts.set(edit.file, applyEdit(name, edit, texts.get(edit.file) ?? read(edit.file)));
  return texts;
}

/**
 * Plants in groups that can be applied together, so that the compiler runs once for each group: no
 * plant changes the anchor of another one of its group.
 */
export function groupsOf(
  plants: readonly Plant[],
  read: (file: string) => string,
): readonly ReadonlyMap<string, string>[] {
  const groups: Map<string, string>[] = [];
  for (const plant of plants) {
    const texts = (group: ReadonlyMap<string, string>): ReadonlyMap<string, string> | null => {
      try {
        return applyEdits(plant, (file) => group.get(file) ?? read(file));
      } catch {
        return null;
      }
    };
    const fitting = groups.find((group) => texts(group) !== null) ?? new Map<string, string>();
    if (!groups.includes(fitting)) groups.push(fitting);
    const applied = texts(fitting) ?? applyEdits(plant, read);
    for (const [file, text] of applied) fitting.set(file, text);
  }
  return groups;
}

export const isSystemTest = ({ file }: TestHint): boolean => file.includes('/test/');

export type Result = {
  readonly plant: Plant;
  /** The tests that failed, or the reason why no test could run. */
  readonly failed: readonly string[];
  readonly problem: string | null;
  readonly seconds: number;
};

const isRed = ({ failed, problem }: Result): boolean => problem === null && failed.length > 0;

/** The part of all plants that gate A must find. */
const LEAST_IN_GATE_A = 0.9;

/**
 * Why a run is a failure; empty: it is none.
 *
 * @param isComplete whether all plants were run, so that the part of gate A has a meaning
 */
export function shortcomings(results: readonly Result[], isComplete: boolean): string[] {
  const inA = results.filter((result) => result.plant.caughtBy.gate === 'A' && isRed(result));
  const missed = results.filter((result) => !isRed(result));
  const isTooFew = inA.length < results.length * LEAST_IN_GATE_A;
  const needed = Math.ceil(results.length * LEAST_IN_GATE_A);
  const fatal = isComplete ? missed.filter(({ plant }) => plant.caughtBy.gate === 'B') : missed;
  return [
    ...(isComplete && isTooFew
      ? [`gate A found ${inA.length} of ${results.length} defects; at least ${needed} are needed`]
      : []),
    ...fatal.map(({ plant }) => `${plant.name}: gate ${plant.caughtBy.gate} did not find it`),
  ];
}

const TESTS_SHOWN = 2;

/** The result of one plant in a line of the table. */
export function rowOf(result: Result): readonly string[] {
  const { plant, failed, problem, seconds } = result;
  const { gate } = plant.caughtBy;
  const more = failed.length > TESTS_SHOWN ? ` and ${failed.length - TESTS_SHOWN} more` : '';
  const reason = plant.caughtBy.gate === 'B' ? ` (${plant.caughtBy.reason})` : '';
  const redBy = isRed(result)
    ? `${failed.slice(0, TESTS_SHOWN).join('; ')}${more}${reason}`
    : `NOT CAUGHT${problem === null ? '' : `: ${problem}`}`;
  return [plant.name, plant.breaks.join(', '), gate, redBy, seconds.toFixed(0)];
}

export const HEADINGS = ['plant', 'breaks', 'gate', 'red by', 's'] as const;

/** A table of Markdown. */
export function tableOf(rows: readonly (readonly string[])[]): string {
  const all = [HEADINGS, HEADINGS.map(() => '---'), ...rows];
  return all.map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}
