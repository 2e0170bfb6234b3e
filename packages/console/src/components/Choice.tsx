import { Radio } from '@mantine/core';
import type { ReactNode } from 'react';
import classes from '../pages/create.module.css';

/**
 * One of several cards to choose from.
 *
 * @param why the reason why it cannot be chosen; null: it can
 */
export function Choice({
  value,
  title,
  children,
  why = null,
}: {
  value: string;
  title: ReactNode;
  children?: ReactNode;
  why?: string | null;
}) {
  return (
    <Radio.Card
      value={value}
      className={classes.option}
      aria-disabled={why !== null}
      {...(why === null
        ? {}
        : { 'data-disabled': true, onClick: (event) => event.preventDefault() })}
    >
      <b>{title}</b>
      {(why ?? children) !== undefined && <span>{why ?? children}</span>}
    </Radio.Card>
  );
}
