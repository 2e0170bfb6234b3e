import type { UseQueryResult } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Card, Unread } from './ui.tsx';

/** The content that a query has read, a placeholder, or why it could not be read. */
export function Load<T>({
  query: { data, error },
  children,
}: {
  query: UseQueryResult<T>;
  children: (data: T) => ReactNode;
}) {
  if (data !== undefined) return children(data);
  return (
    <Card>
      <Unread error={error} rows={5} />
    </Card>
  );
}
