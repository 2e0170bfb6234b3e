import { Modal, TextInput, type ButtonProps } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { useState, type ComponentProps, type ReactNode } from 'react';
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
  const { run, pending, error } = useCall(call, {
    quiet: true,
    ...(onDone === undefined ? {} : { onDone: () => onDone() }),
  });
  return (
    <NameForm name={name} submit={submit} call={{ pending, error }} onSubmit={() => run()}>
      {children}
    </NameForm>
  );
}

/** A form that can be sent once the name is typed. */
export function NameForm({
  name,
  children,
  ...form
}: Pick<ComponentProps<typeof Form>, 'call' | 'submit' | 'onSubmit'> & {
  name: string;
  children: ReactNode;
}) {
  const [typed, setTyped] = useState('');
  return (
    <Form {...form} why={typed === name ? null : `type ${name} first`} button={{ color: 'red.9' }}>
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
