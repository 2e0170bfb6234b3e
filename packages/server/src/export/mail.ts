/** One mail to a mail server of a user: to an allowed address, with a deadline. */
import type { BlockList } from 'node:net';
import type { ShownConfig } from '../domain/alerts/document.ts';
import { connectAllowed, explain, type Outgoing } from '../events/outgoing-request.ts';

/** The time from the begin of the connection to the answer to the message. */
const DEADLINE_MS = 30_000;
/** The longest answer of the server that is read, and the part of it that an error shows. */
const MAX_ANSWER_BYTES = 16_384;
const MAX_SHOWN = 300;

export type Mail = { id: string; subject: string; text: string };

/**
 * Sends a mail.
 *
 * @param password of the user in `config`; undefined: no login
 * @returns error: null when the server accepted it for every recipient
 */
export async function sendMail(
  { host = '', port = 587, encryption = 'starttls', username, from, to = [] }: ShownConfig,
  password: string | undefined,
  { id, subject, text }: Mail,
  allowed: BlockList,
): Promise<Outgoing> {
  const signal = AbortSignal.timeout(DEADLINE_MS);
  try {
    // The library would resolve the name itself, to an address that nobody has checked.
    const connection = await connectAllowed(host, port, allowed, signal);
    // Loaded with the first mail: a start of the control plane does not wait for it.
    const { createTransport } = await import('nodemailer');
    const transport = createTransport({
      host,
      port,
      connection,
      secure: encryption === 'tls',
      requireTLS: encryption === 'starttls',
      ignoreTLS: encryption === 'none',
      maxResponseSize: MAX_ANSWER_BYTES,
      greetingTimeout: DEADLINE_MS,
      socketTimeout: DEADLINE_MS,
      // A message never names a file or a URL that is read.
      disableFileAccess: true,
      disableUrlAccess: true,
      ...(username === undefined ? {} : { auth: { user: username, pass: password ?? '' } }),
    });
    try {
      const { rejected } = await transport.sendMail({
        from: { name: 'Howdah', address: from ?? '' },
        to: [...to],
        subject,
        text,
        messageId: `<${id}@howdah>`,
      });
      const error =
        rejected.length === 0 ? null : `the mail server refused ${rejected.map(String).join(', ')}`;
      return { responseStatus: null, error };
    } finally {
      connection.destroy();
    }
  } catch (error) {
    return { responseStatus: null, error: problemOf(error, signal) };
  }
}

function problemOf(error: unknown, { aborted }: AbortSignal): string {
  if (aborted) return `no answer within ${DEADLINE_MS / 1000} s`;
  const isLogin = error instanceof Error && Reflect.get(error, 'code') === 'EAUTH';
  // The server's words may be long, or control a terminal.
  const words = explain(error)
    .replaceAll(/\p{Cc}+/gu, ' ')
    .slice(0, MAX_SHOWN);
  return isLogin ? `the mail server refused the login: ${words}` : words;
}
