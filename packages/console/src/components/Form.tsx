import { TextInput, type ButtonProps, type TextInputProps } from '@mantine/core';
import { NAME_MAX_CHARACTERS } from '@howdah/contract/types';
import type { ReactNode } from 'react';
import { ActionButton, ErrorNotice } from './ui.tsx';
import classes from './ui.module.css';

/**
 * The frame of every form: its fields, the button that sends it, and the error of the API.
 *
 * @param call the call that it makes
 * @param why the reason why it cannot be sent yet; null: it can
 * @param inline the button stands beside the fields, not below
 */
export function Form({
  call: { pending, error },
  why,
  onSubmit,
  submit,
  button,
  inline = false,
  children,
}: {
  call: { pending: boolean; error: unknown };
  why: string | null;
  onSubmit: () => void;
  submit: ReactNode;
  button?: ButtonProps;
  inline?: boolean;
  children: ReactNode;
}) {
  const send = (
    <ActionButton {...button} type="submit" why={why} loading={pending}>
      {submit}
    </ActionButton>
  );
  return (
    <form
      className={classes.form}
      onSubmit={(event) => {
        event.preventDefault();
        if (why === null) onSubmit();
      }}
    >
      {inline ? (
        <Fields>
          {children}
          {send}
        </Fields>
      ) : (
        children
      )}
      <ErrorNotice error={error} />
      {!inline && <div>{send}</div>}
    </form>
  );
}

/** Fields beside each other where there is room. */
export const Fields = ({ children }: { children: ReactNode }) => (
  <div className={classes.fields}>{children}</div>
);

/** The input of a name, at most as long as the API accepts. */
export function NameInput({
  value,
  onChange,
  ...rest
}: Omit<TextInputProps, 'value' | 'onChange'> & {
  value: string;
  onChange: (name: string) => void;
}) {
  return (
    <TextInput
      maxLength={NAME_MAX_CHARACTERS}
      style={{ flex: '1 1 180px' }}
      {...rest}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
    />
  );
}
