/** Who is logged in. */
import { useSuspenseQuery } from '@tanstack/react-query';
import { meQuery, type Me } from './api.ts';

/** The key of the session. Only below the shell, which shows nothing to nobody. */
export function useMe(): Me {
  const { data } = useSuspenseQuery(meQuery);
  if (data === null) throw new Error('nobody is logged in');
  return data;
}
