/**
 * The error of an action that has to wait, which is not a failure.
 */

/** What is asked for cannot be done at this moment, and will be in the next. */
export class NotYet extends Error {}
