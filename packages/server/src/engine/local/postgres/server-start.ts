/** How a server was started, as its command line says. */
import type { Size } from '@howdah/contract';

/**
 * How a server is started: with the settings of a size, with libraries beside those of its add-ons
 * (`preload`), and after so many requested restarts.
 */
export type Start = Readonly<{ size: Size; preload: readonly string[]; restarts: number }>;

/** That of a server which is no service's: it is never resized or restarted on request. */
export const PLAIN_START: Start = { size: 'shared', preload: [], restarts: 0 };

/** The start of a running server; `size` is a {@link sizeLabel}. */
export type Started = { size: string | null; restarts: number };

/**
 * On the command line of every server of ours: the size it was started with. A newer Howdah may
 * write other settings for the same size; they wait for the next start, since an upgrade of the
 * control plane must not end sessions.
 */
const SIZE_SETTING = 'howdah.size=';

/** Beside it: how many restarts of the service had been requested. */
const RESTARTS_SETTING = 'howdah.restarts=';

export function argumentsOfStart({ size, preload, restarts }: Start): string[] {
  return [
    '-c',
    `${SIZE_SETTING}${sizeLabel(size, preload)}`,
    '-c',
    `${RESTARTS_SETTING}${restarts}`,
  ];
}

/** @param args of a server's command line */
export function startedBy(args: readonly string[]): Started {
  const valueOf = (setting: string): string | undefined =>
    args.find((argument) => argument.startsWith(setting))?.slice(setting.length);
  return {
    size: valueOf(SIZE_SETTING) ?? null,
    // Older releases did not count them.
    restarts: Number(valueOf(RESTARTS_SETTING) ?? '0'),
  };
}

/**
 * A size as a command line has it, with the libraries beside those of the add-ons: a server with
 * others has to be started again.
 */
export function sizeLabel(size: Size, libraries: readonly string[] = []): string {
  const label = size === 'shared' ? 'shared' : `${size.cpuMillis}m-${size.memoryGbs}g`;
  return [label, ...libraries.toSorted()].join('+');
}
