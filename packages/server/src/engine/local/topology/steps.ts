/** The steps of work that is recorded as a whole, when all of it is done. */
import type { OperationStep } from '@howdah/contract';

/** Notes steps that are recorded when all is done. */
export function createSteps() {
  const steps: OperationStep[] = [];
  return {
    take: async <T>(
      name: string,
      work: () => Promise<T>,
      detail: (result: T) => string,
    ): Promise<T> => {
      const started = new Date().toISOString();
      const result = await work();
      steps.push({ name, started, finished: new Date().toISOString(), detail: detail(result) });
      return result;
    },
    done: (): OperationStep[] => steps,
  };
}
