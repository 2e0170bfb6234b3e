/**
 * What the engine and the activator say to each other, a line of JSON each, over a Unix socket in
 * a directory that only their own user can enter.
 */
import type { Socket } from 'node:net';
import type { LaunchPlan } from '../postgres/server.ts';

/** The socket of the activator, in its directory. */
export const SOCKET_NAME = 'control.sock';

/**
 * `held`: clients wait for the control plane. `asleep`: the first client has the server started.
 * `waking`: clients wait for the server that the activator has started. `awake`: clients are
 * connected to their server.
 */
export type RelayState = 'held' | 'asleep' | 'waking' | 'awake';

/** A relay before the server of a service: where its clients connect. */
export type RelayPlan = Readonly<{
  id: string;
  listen: Readonly<{ address: string; port: number }>;
  /** The networks whose clients may connect; null: all. */
  allowedNetworks: readonly string[] | null;
  /** The port of the server on the loopback address. */
  serverPort: number;
  launch: LaunchPlan;
  /** Whether a relay that is open has the same plan. */
  version: string;
}>;

export type RelayView = Readonly<{
  id: string;
  state: RelayState;
  version: string;
  /** Clients that are connected to the server, or wait for it. */
  clients: number;
  /** For how long no client has sent anything, no wake was asked for, nor the relay opened. */
  idleMs: number;
  /** Why the server was not started the last time, for operators; null: it was. */
  problem: string | null;
}>;

/** A client that is connected to its server. */
export type RelayClient = Readonly<{
  address: string;
  /** The port by which its server knows the session. */
  serverPort: number;
}>;

export type Request =
  | Readonly<{ op: 'list' }>
  | Readonly<{ op: 'see'; id: string }>
  /**
   * Opens a relay, or changes it; sessions that are still allowed go on. `from`: the state that it
   * must be in; null: there is none.
   */
  | Readonly<{ op: 'open'; plan: RelayPlan; state: RelayState; from: RelayState | null }>
  /** Ends its sessions too. @returns false: it is waking, and its server would be left behind */
  | Readonly<{ op: 'close'; id: string }>
  | Readonly<{ op: 'clients'; id: string }>
  /**
   * Has clients wait, unless one is there or has been within `idleMs`. @returns the number of the
   * turn, for `sleep`; null: a client is or was there
   */
  | Readonly<{ op: 'hold'; id: string; idleMs: number }>
  /**
   * The server has stopped since that turn, and sleeps; clients that came meanwhile wake it.
   * @returns false: the relay has turned since
   */
  | Readonly<{ op: 'sleep'; id: string; turn: number }>
  /** Has the server of a relay started, as a client does. @returns when it is awake */
  | Readonly<{ op: 'wake'; id: string }>;

/** The requested parts; of a change whether it was made. */
export type Value = Readonly<{
  relays?: readonly RelayView[];
  clients?: readonly RelayClient[];
  turn?: number | null;
  done?: boolean;
}>;

/** To each request an answer with its number, and news without one. */
export type Answer =
  | Readonly<{ n: number; value: Value }>
  | Readonly<{ n: number; error: string }>
  /** The state of a relay has changed by itself. */
  | Readonly<{ changed: string }>;

export function send(socket: Socket, message: Answer | (Request & { n: number })): void {
  socket.write(`${JSON.stringify(message)}\n`);
}

/**
 * Calls for each line of a socket, which both ends trust. An end that is killed may leave a part of
 * a line, which is dropped: it is no message.
 */
export function eachLine(socket: Socket, take: (line: string) => void): void {
  let rest = '';
  socket.setEncoding('utf8').on('data', (text: string) => {
    const lines = `${rest}${text}`.split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) take(line);
  });
}
