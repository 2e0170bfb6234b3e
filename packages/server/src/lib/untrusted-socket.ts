/**
 * Connections to Unix sockets in directories that another user of the operating system can write,
 * as that of a service. A socket may be replaced by a link to the socket of another service, whose
 * server accepts root's connections as well: statements for one service would run on the other. The
 * socket is opened without following a link, must belong to the owner of its directory, and is
 * connected to through the descriptor.
 */
import { Socket } from 'node:net';
import { asError } from '@howdah/contract/thrown';
import { openSocketPlace } from './untrusted-files.ts';

/** For `stream` of a pg client, and wherever such a socket is connected to. */
export function untrustedSocket(): Socket {
  const socket = new Socket();
  const connect = socket.connect.bind(socket);
  return Object.assign(socket, {
    connect: (path: string): Socket => {
      try {
        const place = openSocketPlace(path);
        try {
          return connect(place.path); // the system's call is made before this returns
        } finally {
          place.close();
        }
      } catch (error) {
        process.nextTick(() => socket.destroy(asError(error)));
        return socket;
      }
    },
  });
}
