import {
  FileInput,
  PasswordInput,
  TextInput,
  type ButtonProps,
  type TextInputProps,
} from '@mantine/core';
import { NAME_MAX_CHARACTERS } from '@howdah/contract/types';
import { useState, type ReactNode } from 'react';
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

type InputProps = {
  label: string;
  placeholder?: string;
  value: string;
  onChange: (value: string) => void;
};

const widthOf = (wide: boolean) => ({ flex: wide ? '2 1 300px' : '1 1 180px' });

/** A field for text. @param wide it takes twice the width where there is room */
export const TextField = ({ wide = false, onChange, ...rest }: InputProps & { wide?: boolean }) => (
  <TextInput
    {...rest}
    autoComplete="off"
    onChange={(event) => onChange(event.currentTarget.value)}
    style={widthOf(wide)}
  />
);

/** A field for a secret of one line. */
export const SecretField = ({ onChange, ...rest }: InputProps) => (
  <PasswordInput
    {...rest}
    autoComplete="new-password"
    onChange={(event) => onChange(event.currentTarget.value)}
    visibilityToggleButtonProps={{ 'aria-label': 'Show the secret' }}
    style={widthOf(false)}
  />
);

/** Text of several lines, as a secret, from a file of the user's machine. */
export function FileField({ label, placeholder, value, onChange }: InputProps): ReactNode {
  const [file, setFile] = useState<File | null>(null);
  return (
    <FileInput
      label={label}
      placeholder={placeholder}
      clearable
      clearButtonProps={{ 'aria-label': `Clear: ${label}` }}
      // A form that was sent has no contents any more.
      value={value === '' ? null : file}
      onChange={(chosen) => {
        setFile(chosen);
        if (chosen === null) onChange('');
        else void chosen.text().then(onChange);
      }}
      style={widthOf(false)}
    />
  );
}
