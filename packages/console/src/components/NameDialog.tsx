import { Modal, TextInput } from '@mantine/core';
import { describeEffects } from '@howdah/contract/effects';
import { useState } from 'react';
import type { Question } from '../ask-name.ts';
import { Form } from './Form.tsx';

/** Asks for the name, with what the action does. */
export function NameDialog({ question: { action, name, answer } }: { question: Question }) {
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
