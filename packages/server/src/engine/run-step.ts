/** A part of longer work, as operations show it. */
/**
 * Performs a part of longer work and shows it: its name, the line that it passes to `show`
 * meanwhile, and at the end the line that it returns. If the part fails, its error is shown and
 * thrown on.
 */
export type RunStep = (
  name: string,
  work: (show: (line: string) => void) => Promise<string>,
) => Promise<void>;
