/** The steps of work that is recorded as a whole, when all of it is done. */
import type { OperationStep } from '@howdah/contract';
import { begunStep, endOfStep } from '../../../domain/operation/steps.ts';

/** Notes steps that are recorded when all is done. */
export function createSteps() {
  const steps: OperationStep[] = [];
  return {
    take: async <T>(
      name: string,
      work: () => Promise<T>,
      detail: (result: T) => string,
    ): Promise<T> => {
      const step = begunStep(name);
      const result = await work();
      steps.push({ ...step, ...endOfStep('ok', detail(result)) });
      return result;
    },
    done: (): OperationStep[] => steps,
  };
}
