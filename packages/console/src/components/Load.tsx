import type { UseQueryResult } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Card, ErrorNotice, Waiting } from './ui.tsx';

/** What was read, or its place, or why it could not be. */
export function Load<T>({
  query: { data, error },
  children,
}: {
  query: UseQueryResult<T>;
  children: (data: T) => ReactNode;
}) {
  if (data !== undefined) return children(data);
  return <Card>{error === null ? <Waiting rows={5} /> : <ErrorNotice error={error} />}</Card>;
}
