/** The output of the pod of a verification, and the result that is kept with its Backup. */
import type { Verification } from '@howdah/contract';
import { VerificationSchema } from '@howdah/contract';
import { Value } from 'typebox/value';
import { RESTORE_ARCHIVE, VERIFICATION_STEP } from '../../verification-steps.ts';

export type PodStep = 'restore' | 'replay' | 'relations' | 'pages';

/**
 * The steps in their order, by their names in the output of the pod.
 *
 * @param toMs the moment up to which an archive is recovered; null: it is a snapshot
 */
export const stepsOf = (toMs: number | null): readonly (readonly [PodStep, string])[] => [
  ['restore', toMs === null ? VERIFICATION_STEP.restore : RESTORE_ARCHIVE],
  ['replay', VERIFICATION_STEP.replay],
  ['relations', VERIFICATION_STEP.relations],
  ['pages', VERIFICATION_STEP.pages],
];

/** `failed` says that the backup is damaged, `error` that it could not be examined. */
export type StepResult = Readonly<{ state: 'ok' | 'failed' | 'error'; detail: string }>;

const LINE = /^(restore|replay|relations|pages) (ok|failed|error) ([A-Za-z0-9+/=]*)$/;
/** Longest detail that users are shown. */
const MAX_LENGTH = 500;

/** The result of a step in the output of the pod; null: it has not ended. */
export function resultIn(output: string, step: PodStep): StepResult | null {
  for (const line of output.split('\n')) {
    const [, name, state, detail = ''] = LINE.exec(line) ?? [];
    if (name === step && (state === 'ok' || state === 'failed' || state === 'error'))
      return { state, detail: textOf(detail) };
  }
  return null;
}

/** Names of a tenant are in it. */
const textOf = (base64: string): string =>
  Buffer.from(base64, 'base64')
    .toString('utf8')
    .replaceAll(/[\p{Cc}\p{Cf}]+/gu, ' ')
    .trim()
    .slice(0, MAX_LENGTH);

/** The result of a verification, of the annotation of its Backup; null: it has none. */
export function readVerification(text: string | undefined): Verification | null {
  if (text === undefined) return null;
  try {
    const parsed: unknown = JSON.parse(text);
    return Value.Check(VerificationSchema, parsed) ? parsed : null;
  } catch {
    return null;
  }
}
