/** Who is logged in. */
import { useSuspenseQuery } from '@tanstack/react-query';
import { meQuery, type Me } from './api.ts';

/** The key of the session. Use it inside the shell only, which is shown to logged-in users only. */
export function useMe(): Me {
  const { data } = useSuspenseQuery(meQuery);
  if (data === null) throw new Error('nobody is logged in');
  return data;
}
