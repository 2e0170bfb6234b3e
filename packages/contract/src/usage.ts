/** The order in which all clients show what services take. */

type Weight = Readonly<{ own_mb: number | null; memory_mb: number | null }>;

const weightOf = ({ own_mb: disk, memory_mb: memory }: Weight): number =>
  (disk ?? 0) + (memory ?? 0);

/** For sorting: what takes most of the machine comes first. */
export const largestFirst = (one: Weight, other: Weight): number => weightOf(other) - weightOf(one);
