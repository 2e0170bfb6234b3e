import { TextInput } from '@mantine/core';
import { useState } from 'react';
import { Form } from './Form.tsx';

/**
 * What a dialog asks before something is taken away: its name, typed. It starts empty each time the dialog opens.
 *
 * @param call the call that takes it away
 * @param submit the label of the button
 */
export function ConfirmName({
  name,
  call,
  submit,
  onConfirm,
}: {
  name: string;
  call: { pending: boolean; error: unknown };
  submit: string;
  onConfirm: () => void;
}) {
  const [typed, setTyped] = useState('');
  return (
    <Form
      call={call}
      why={typed === name ? null : `type ${name} first`}
      onSubmit={onConfirm}
      submit={submit}
      button={{ color: 'red.9' }}
    >
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
  );
}
