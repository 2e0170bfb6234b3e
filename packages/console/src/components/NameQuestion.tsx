import { lazy, Suspense, useSyncExternalStore } from 'react';
import { onQuestion, questionNow } from '../ask-name.ts';

/** Loaded when it is needed: the first load of the console has no part of it. */
const NameDialog = lazy(async () => ({
  default: (await import('./NameDialog.tsx')).NameDialog,
}));

/** The question for a name, while there is one. */
export function NameQuestion() {
  const question = useSyncExternalStore(onQuestion, questionNow);
  if (question === null) return null;
  return (
    <Suspense fallback={null}>
      <NameDialog key={question.name} question={question} />
    </Suspense>
  );
}
