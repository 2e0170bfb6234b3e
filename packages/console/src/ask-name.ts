/**
 * Asks for the name of a PROD service, or of a PROD read replica set, before an action that takes
 * something away from its users: one question for all pages.
 */
import type { Action } from '@howdah/contract/actions';
import type { Environment } from '@howdah/contract/types';

/** A service or a set, as it is asked about. */
type Protected = Readonly<{ name: string; environment: Environment }>;

export type Question = Readonly<{
  action: Action;
  name: string;
  /** Called with what was typed; null: the user has closed the question. */
  answer: (typed: string | null) => void;
}>;

let asked: Question | null = null;
let changed: () => void = () => undefined;

function ask(question: Question | null): void {
  asked = question;
  changed();
}

/** @returns the query of the call @throws Error when the name was not typed */
export async function askName(
  action: Action,
  { name, environment }: Protected,
): Promise<{ confirm?: string }> {
  if (environment !== 'PROD') return {};
  // Loaded when it is needed: the first load of the console has no part of it.
  const { asksForName } = await import('@howdah/contract/effects');
  if (!asksForName(action, environment)) return {};
  asked?.answer(null);
  const typed = await new Promise<string | null>((answer) => ask({ action, name, answer }));
  ask(null);
  if (typed !== name) throw new Error('nothing was changed: the name was not typed');
  return { confirm: name };
}

/** Calls `listener` when a question begins or ends. @returns the end of that */
export function onQuestion(listener: () => void): () => void {
  changed = listener;
  return () => {
    changed = () => undefined;
  };
}

/** The question that waits for an answer; null: none does. */
export const questionNow = (): Question | null => asked;
