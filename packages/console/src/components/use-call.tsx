import { notifications } from '@mantine/notifications';
import { useMutation } from '@tanstack/react-query';
import { useLookAgain } from '../live.ts';
import { ErrorText } from './ui.tsx';

/**
 * A call that changes something: everything shown is looked at again afterwards, whatever became of it.
 *
 * @param onDone told of the answer
 * @param quiet the page shows `error` itself; otherwise a notification does
 */
export function useCall<A extends unknown[], T>(
  call: (...args: A) => Promise<T>,
  { onDone, quiet = false }: { onDone?: (answer: T) => void; quiet?: boolean } = {},
) {
  const lookAgain = useLookAgain();
  const mutation = useMutation({
    mutationFn: (args: A) => call(...args),
    onSuccess: (answer) => onDone?.(answer),
    onError: (error) => {
      if (!quiet)
        notifications.show({
          color: 'red',
          title: 'That did not work',
          message: <ErrorText error={error} />,
          autoClose: 12_000,
        });
    },
    onSettled: () => lookAgain(),
  });
  return {
    run: (...args: A) => mutation.mutate(args),
    pending: mutation.isPending,
    error: mutation.error,
    reset: mutation.reset,
  };
}
