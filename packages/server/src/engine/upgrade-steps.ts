/** The names of the steps of an upgrade, as users read them. */

/** The steps that move the data of a service into another major version. */
export const UPGRADE_STEPS = ['copy data into the new version', 'exchange data'] as const;
/** The step of a trial. */
export const TRIAL_STEP = 'copy data into the new version, beside the service';
