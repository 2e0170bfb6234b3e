import { Modal, TextInput, type ButtonProps } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { useState, type ReactNode } from 'react';
import { Form } from './Form.tsx';
import { ActionButton } from './ui.tsx';
import { useCall } from './use-call.tsx';

type Ending = {
  /** The name to type. */
  name: string;
  /** The label of the dialog's button. */
  submit: string;
  call: () => Promise<unknown>;
  onDone?: () => void;
  /** The consequences. */
  children: ReactNode;
};

/** A button that ends something that others may use: a dialog asks for its name first. */
export function ConfirmName({
  label,
  title,
  why,
  button,
  onDone,
  ...ending
}: Ending & { label: string; title: string; why: string | null; button?: ButtonProps }) {
  const [opened, { open, close }] = useDisclosure(false);
  return (
    <>
      <ActionButton variant="default" {...button} why={why} onClick={open}>
        {label}
      </ActionButton>
      <Modal
        opened={opened}
        onClose={close}
        title={title}
        closeButtonProps={{ 'aria-label': 'Close' }}
      >
        <Contents
          {...ending}
          onDone={() => {
            close();
            onDone?.();
          }}
        />
      </Modal>
    </>
  );
}

/** The contents of the dialog. They are empty again each time it opens. */
function Contents({ name, submit, call, onDone, children }: Ending) {
  const [typed, setTyped] = useState('');
  const { run, pending, error } = useCall(call, {
    quiet: true,
    ...(onDone === undefined ? {} : { onDone: () => onDone() }),
  });
  return (
    <Form
      call={{ pending, error }}
      why={typed === name ? null : `type ${name} first`}
      onSubmit={() => run()}
      submit={submit}
      button={{ color: 'red.9' }}
    >
      <p style={{ margin: 0, lineHeight: 1.55 }}>{children}</p>
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
