/**
 * Commit messages: an imperative subject of at most 72 characters, an empty line, and a body.
 *
 * Only commits that are not on the main branch yet are checked, because only they can be amended.
 */
import { spawnSync } from 'node:child_process';

const MAX_SUBJECT = 72;
/** The last commit before this rule, for a clone that has neither a remote nor a branch `main`. */
const FIRST_BASE = 'e630c7645b94';
const NOT_A_VERB = /^(a|an|the|of|no|not|what|when|who|it|this|that|these|one|some|all|each)$/i;
const LOOKS_BENT = /(ed|ing|[^sui]s)$/i;
/** Verbs that only look like a past tense or a third person. */
const IMPERATIVE = new RegExp(
  '^(embed|shed|feed|speed|need|seed|heed|exceed|proceed|succeed|bleed|breed|' +
    'bring|string|ping|swing|cling|sting|canvas|always)$',
  'i',
);
const TRAILER = /^[A-Za-z-]+: /;

/** @returns what is wrong with the message; empty: nothing */
export function faultsOf(message: string): string[] {
  const [subject = '', second, ...rest] = message.trimEnd().split('\n');
  const [verb = ''] = subject.split(/[\s:,]/);
  const body = rest.filter((line) => line.trim() !== '' && !TRAILER.test(line));
  const isImperative = IMPERATIVE.test(verb) || (!NOT_A_VERB.test(verb) && !LOOKS_BENT.test(verb));
  return [
    ...([...subject].length > MAX_SUBJECT
      ? [`the subject has ${[...subject].length} characters, at most ${MAX_SUBJECT} are allowed`]
      : []),
    ...(/^[A-Z]/.test(subject) ? [] : ['the subject does not begin with a capital letter']),
    ...(subject.endsWith('.') ? ['the subject ends with a full stop'] : []),
    ...(isImperative ? [] : [`"${verb}" is not an imperative, as in "Add" or "Check"`]),
    ...(second === undefined || second === '' ? [] : ['no empty line follows the subject']),
    ...(body.length > 0 ? [] : ['there is no body that gives the reason']),
  ];
}

/** @returns the revision that new commits follow, or null if there is none in this clone */
function baseOf(root: string): string | null {
  const head = revision(root, 'HEAD');
  const branch = git(root, ['symbolic-ref', '--short', '--quiet', 'HEAD']);
  if (revision(root, 'origin/main') !== null) return 'origin/main';
  if (branch !== 'main' && revision(root, 'main') !== null) return 'main';
  return head !== null && isAncestor(root, FIRST_BASE) ? FIRST_BASE : null;
}

/** @returns a line for each fault, and how many commits were checked */
export function checkCommits(root: string): {
  base: string | null;
  count: number;
  faults: string[];
} {
  const base = baseOf(root);
  if (base === null) return { base, count: 0, faults: [] };
  const log = git(root, ['log', '--no-merges', '--format=%h%x00%B%x01', `${base}..HEAD`]) ?? '';
  const commits = log.split('\u0001').flatMap((entry) => {
    const [id, message] = entry.trimStart().split('\0');
    return id === undefined || message === undefined ? [] : [{ id, message }];
  });
  const faults = commits.flatMap(({ id, message }) =>
    faultsOf(message).map((fault) => `${id} "${message.split('\n')[0] ?? ''}": ${fault}`),
  );
  return { base, count: commits.length, faults };
}

function isAncestor(root: string, commit: string): boolean {
  return git(root, ['merge-base', '--is-ancestor', commit, 'HEAD']) !== null;
}

function revision(root: string, name: string): string | null {
  return git(root, ['rev-parse', '--verify', '--quiet', `${name}^{commit}`]);
}

function git(root: string, args: readonly string[]): string | null {
  const { status, stdout } = spawnSync('git', args, { cwd: root, encoding: 'utf8' });
  return status === 0 ? stdout.trim() : null;
}
