/** A server of a cloud's storage, for the tests of cloud-scenario.ts. */

export type CloudServer = {
  /** Starts it again after `stop`, with the same contents at the same address. */
  start: () => Promise<void>;
  stop: () => Promise<void>;
  /** The options of `howdah repo add`, each with its value. */
  options: (more?: Record<string, string>) => string[];
  /** Options that it refuses, and why. */
  wrong: [Record<string, string>, RegExp][];
};

/** Options with their values, as words of a command. */
export const words = (options: Record<string, string>): string[] =>
  Object.entries(options).flatMap(([option, value]) =>
    value === '' ? [`--${option}`] : [`--${option}`, value],
  );
