/**
 * Asks for the name of a PROD service, or of a PROD read replica set, before an action that takes
 * something away from its users: one question for all pages.
 */
import { Modal, TextInput } from '@mantine/core';
import { asksForName, describeEffects } from '@howdah/contract/effects';
import type { Action } from '@howdah/contract/actions';
import type { Environment } from '@howdah/contract/types';
import { useState, useSyncExternalStore } from 'react';
import { Form } from './components/Form.tsx';

/** A service or a set, as it is asked about. */
type Protected = Readonly<{ name: string; environment: Environment }>;

type Question = Readonly<{
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
  if (!asksForName(action, environment)) return {};
  asked?.answer(null);
  const typed = await new Promise<string | null>((answer) => ask({ action, name, answer }));
  ask(null);
  if (typed !== name) throw new Error('nothing was changed: the name was not typed');
  return { confirm: name };
}

/** The question, while there is one. */
export function NameQuestion() {
  const question = useSyncExternalStore(
    (listener) => {
      changed = listener;
      return () => {
        changed = () => undefined;
      };
    },
    () => asked,
  );
  if (question === null) return null;
  return <Ask key={question.name} question={question} />;
}

function Ask({ question: { action, name, answer } }: { question: Question }) {
  const [typed, setTyped] = useState('');
  return (
    <Modal
      opened
      onClose={() => answer(null)}
      title={`${name} is PROD`}
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <Form
        call={{ pending: false, error: null }}
        why={typed === name ? null : `type ${name} first`}
        onSubmit={() => answer(typed)}
        submit="Continue"
        button={{ color: 'red.9' }}
      >
        <p style={{ margin: 0, lineHeight: 1.55 }}>This {describeEffects(action)}.</p>
        <TextInput
          label={
            <>
              Type <code>{name}</code> to confirm
            </>
          }
          autoComplete="off"
          value={typed}
          onChange={(event) => setTyped(event.currentTarget.value)}
          data-autofocus
        />
      </Form>
    </Modal>
  );
}
