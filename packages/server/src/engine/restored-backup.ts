/** The measurements of a backup that a verification restored, for its certificate. */
import type { RestoreCertificate, Verification } from '@howdah/contract';

/** The measurements of an engine beside the checks of a verification. */
export type Measured = Pick<
  RestoreCertificate,
  'backup' | 'began' | 'contents' | 'pages' | 'postgresql_version' | 'rpo_seconds'
>;

/** A backup that was restored and found sound. */
export type RestoredBackup = Measured &
  Pick<RestoreCertificate, 'checks' | 'ended' | 'recovery_point' | 'rto_seconds'>;

/** A verification with what was measured; `restored` is null if it failed. */
export type Verified<Result extends Verification = Verification> = Readonly<{
  verification: Result;
  restored: RestoredBackup | null;
}>;

export function verifiedOf<Result extends Verification>(
  verification: Result,
  measured: Measured,
): Verified<Result> {
  const { succeeded, at, checks } = verification;
  if (!succeeded) return { verification, restored: null };
  const restored = {
    ...measured,
    ended: at,
    recovery_point: verification.recovery_point,
    rto_seconds: verification.recovery_seconds,
    checks: checks.map(({ name, detail }) => ({ name, detail })),
  };
  return { verification, restored };
}

/** The seconds from one moment to another, in ms since the epoch: whole ones, at least 0. */
export const secondsBetween = (fromMs: number, toMs: number): number =>
  Math.max(0, Math.ceil((toMs - fromMs) / 1000));
