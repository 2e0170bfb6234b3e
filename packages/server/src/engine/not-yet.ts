/**
 * The error of an action that has to wait, which is not a failure.
 */

/** The action cannot be done now, but soon. */
export class NotYet extends Error {}

/** Thrown by a step that would fail again: what was asked for is refused. */
export class Refused extends Error {}
