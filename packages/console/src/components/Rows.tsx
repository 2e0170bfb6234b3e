import type { ReactNode } from 'react';
import classes from './ui.module.css';

/** @param title null: what can be done to a row */
export type Column<T> = { title: string | null; show: (row: T) => ReactNode };

/** A table. On a phone each row is a block of its own, with each value beside its title. */
export function Rows<T>({
  rows,
  idOf,
  columns,
}: {
  rows: readonly T[];
  idOf: (row: T) => string;
  columns: readonly Column<T>[];
}) {
  return (
    <table className={classes.table}>
      <thead>
        <tr>
          {columns.map(({ title }) => (
            <th key={title} scope="col">
              {title ?? <span className="visually-hidden">Action</span>}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={idOf(row)}>
            {columns.map(({ title, show }) => (
              <td
                key={title}
                {...(title === null ? { className: classes.action } : { 'data-title': title })}
              >
                <div>{show(row)}</div>
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
