import { notifications } from '@mantine/notifications';
import { useMutation } from '@tanstack/react-query';
import { NotConfirmed } from '../ask-name.ts';
import { useRefresh } from '../live.ts';
import { ErrorText } from './ui.tsx';

/**
 * A call that changes something. All shown data is read again after it, also if it fails.
 *
 * @param onDone receives the answer
 * @param quiet whether the page shows `error` itself, in place of a notification
 */
export function useCall<A extends unknown[], T>(
  call: (...args: A) => Promise<T>,
  { onDone, quiet = false }: { onDone?: (answer: T) => void; quiet?: boolean } = {},
) {
  const refresh = useRefresh();
  const mutation = useMutation({
    mutationFn: (args: A) => call(...args),
    onSuccess: (answer) => onDone?.(answer),
    onError: (error) => {
      if (!quiet && !(error instanceof NotConfirmed))
        notifications.show({
          color: 'red',
          title: 'Request failed',
          message: <ErrorText error={error} />,
          autoClose: 12_000,
        });
    },
    onSettled: () => refresh(),
  });
  return {
    run: (...args: A) => mutation.mutate(args),
    pending: mutation.isPending,
    error: mutation.error instanceof NotConfirmed ? null : mutation.error,
    reset: mutation.reset,
  };
}
