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

/** The user has closed the question: nothing was asked of the API, and there is nothing to show. */
export class NotConfirmed extends Error {
  override readonly name = 'NotConfirmed';
}

/** @returns the query of the call @throws NotConfirmed */
export async function askName(
  action: Action,
  { name, environment }: Protected,
): Promise<{ confirm?: string }> {
  if (environment !== 'PROD') return {};
  // Loaded when it is needed: the first load of the console has no part of it.
  const { asksForName } = await import('@howdah/contract/effects');
  if (!asksForName(action, environment)) return {};
  asked?.answer(null);
  const typed = await new Promise<string | null>((resolve) => {
    const question: Question = {
      action,
      name,
      answer: (text) => {
        // Another question may have taken the place of this one.
        if (asked === question) ask(null);
        resolve(text);
      },
    };
    ask(question);
  });
  if (typed !== name) throw new NotConfirmed('the name was not typed');
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
