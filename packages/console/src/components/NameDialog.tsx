import { Modal } from '@mantine/core';
import { describeEffects } from '@howdah/contract/effects';
import type { Question } from '../ask-name.ts';
import { NameForm } from './ConfirmName.tsx';

/** Asks for the name, with what the action does. */
export function NameDialog({ question: { action, name, answer } }: { question: Question }) {
  return (
    <Modal
      opened
      onClose={() => answer(null)}
      title={`${name} is PROD`}
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <NameForm
        name={name}
        call={{ pending: false, error: null }}
        onSubmit={() => answer(name)}
        submit="Continue"
      >
        This {describeEffects(action)}.
      </NameForm>
    </Modal>
  );
}
