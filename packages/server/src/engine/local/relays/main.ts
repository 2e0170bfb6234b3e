/** The entry of the activator's process. Its working directory is its own. */
import { SOCKET_NAME } from './messages.ts';
import { runActivator } from './activator.ts';

await runActivator(SOCKET_NAME);
