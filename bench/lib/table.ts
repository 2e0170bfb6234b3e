import { round, type Summary } from './measure.ts';

/** A line of the table that is printed at the end. */
export type Row = {
  goal: string;
  what: string;
  ours: string;
  against: string;
  theirs: string;
  ratio: string;
  bound: string;
  met: 'yes' | 'no' | '';
  limit: string;
};

/** The bound of a goal. `plus`: so much more, in the unit of the figure, than the multiple. */
export type Bound = { atMost: number; plus?: number } | { atLeast: number } | null;

/**
 * A row that divides our figure by another one.
 *
 * @param ratio ours by theirs, or theirs by ours where the goal is "times faster"
 */
export function compared(row: {
  goal: string;
  what: string;
  unit: string;
  ours: Summary;
  against: string;
  theirs: Summary;
  ratio: 'ours/theirs' | 'theirs/ours';
  bound: Bound;
  limit: string;
}): Row {
  const ratio =
    row.ratio === 'ours/theirs'
      ? row.ours.median / row.theirs.median
      : row.theirs.median / row.ours.median;
  return {
    goal: row.goal,
    what: row.what,
    ours: inWords(row.ours, row.unit),
    against: row.against,
    theirs: inWords(row.theirs, row.unit),
    ratio: round(ratio),
    bound: boundInWords(row.bound, '', row.unit),
    met: judge(ratio - plusOf(row.bound) / row.theirs.median, row.bound),
    limit: row.limit,
  };
}

/** A row that compares our figure with a fixed bound. */
export function bounded(row: {
  goal: string;
  what: string;
  unit: string;
  ours: Summary;
  bound: Bound;
  limit: string;
}): Row {
  return {
    goal: row.goal,
    what: row.what,
    ours: inWords(row.ours, row.unit),
    against: '',
    theirs: '',
    ratio: '',
    bound: boundInWords(row.bound, ` ${row.unit}`, row.unit),
    met: judge(row.ours.median, row.bound),
    limit: row.limit,
  };
}

/** A row that says why something was not measured. */
export function skipped(goal: string, what: string, why: string): Row {
  return {
    goal,
    what,
    ours: 'not measured',
    against: '',
    theirs: '',
    ratio: '',
    bound: '',
    met: '',
    limit: why,
  };
}

function judge(value: number, bound: Bound): Row['met'] {
  if (bound === null) return '';
  return ('atMost' in bound ? value <= bound.atMost : value >= bound.atLeast) ? 'yes' : 'no';
}

function boundInWords(bound: Bound, each: string, unit: string): string {
  if (bound === null) return '';
  const plus = plusOf(bound) === 0 ? '' : ` × + ${plusOf(bound)} ${unit}`;
  return 'atMost' in bound ? `≤ ${bound.atMost}${each}${plus}` : `≥ ${bound.atLeast}${each}`;
}

function plusOf(bound: Bound): number {
  return bound !== null && 'atMost' in bound ? (bound.plus ?? 0) : 0;
}

function inWords({ median, min, max, n }: Summary, unit: string): string {
  return n === 1
    ? `${round(median)} ${unit}`
    : `${round(median)} ${unit} (${round(min)}–${round(max)}), n=${n}`;
}

const COLUMNS: [keyof Row, string][] = [
  ['goal', 'goal'],
  ['what', 'what'],
  ['ours', 'Howdah'],
  ['against', 'measured against'],
  ['theirs', 'its figure'],
  ['ratio', 'ratio'],
  ['bound', 'goal'],
  ['met', 'met'],
  ['limit', 'what limits it'],
];

/** The rows as a Markdown table. */
export function markdown(rows: readonly Row[]): string {
  const lines = [
    COLUMNS.map(([, title]) => title),
    COLUMNS.map(() => '---'),
    ...rows.map((row) => COLUMNS.map(([key]) => row[key].replaceAll('|', '\\|'))),
  ];
  return lines.map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}
