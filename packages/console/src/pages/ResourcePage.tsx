import type { UseQueryResult } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Card, Denied, Load, PageHead } from '../components/ui.tsx';
import { useMe } from '../session.ts';
import { whyReadOnly } from '../status.ts';
import ui from './project.module.css';

/**
 * A page that lists the resources of a project of one kind, after the form that creates one.
 *
 * @param what what a key that only reads cannot do
 * @param empty shown in place of an empty list
 * @param children shows one of them
 */
export function ResourcePage<T>({
  title,
  about,
  what,
  form,
  query,
  empty,
  children,
}: {
  title: string;
  about: string;
  what: string;
  form: ReactNode;
  query: UseQueryResult<T[]>;
  empty: ReactNode;
  children: (one: T, all: readonly T[]) => ReactNode;
}) {
  const why = whyReadOnly(useMe());
  return (
    <>
      <PageHead title={title} about={about} />
      <div className={ui.stack}>
        {why === null ? form : <Denied what={what} why={why} />}
        <Load query={query}>
          {(found) =>
            found.length === 0 ? <Card>{empty}</Card> : found.map((one) => children(one, found))
          }
        </Load>
      </div>
    </>
  );
}
