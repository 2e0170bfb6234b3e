import type { FileSystem, Loop } from './filesystems.ts';
import type { Row } from './table.ts';

/** The arguments of a benchmark. */
export type Context = {
  /** A directory of the run, removed at its end. */
  temp: string;
  /** Rounds, of which the first is dropped. */
  rounds: number;
  /** Sizes of the databases that are forked, in MB. */
  sizesMb: readonly number[];
  /** How many services are recovered at the same time. */
  services: number;
  /** The scale of pgbench where services are compared with PostgreSQL by hand. */
  scale: number;
  /** The length of a sample there, if its time is fixed. */
  seconds: number;
  /** The file system of the temporary directory. */
  here: FileSystem;
  /** A file system in a loop file, made at the first call; a string says why there is none. */
  loop: (kind: Loop) => Promise<FileSystem | string>;
  /** The file systems that forks are measured on. */
  fileSystems: () => Promise<(FileSystem | string)[]>;
  /** Prints the progress. */
  say: (text: string) => void;
};

export type Bench = { name: string; title: string; run: (context: Context) => Promise<Row[]> };
