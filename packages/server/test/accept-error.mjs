// SIGUSR2 makes each listening server report an error of accept, as a lack of descriptors does.
import { Server } from 'node:net';

const { prototype } = Server;
const listen = Reflect.get(prototype, 'listen');
prototype.listen = function (...more) {
  process.on('SIGUSR2', () => this.emit('error', Object.assign(new Error(), { code: 'ENFILE' })));
  return listen.apply(this, more);
};
