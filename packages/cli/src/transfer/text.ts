/** The output of a program as text. */
import { Writable } from 'node:stream';

/** A stream that keeps what is written to it. */
export function collect(): { stream: Writable; text: () => string } {
  const parts: Buffer[] = [];
  const stream = new Writable({
    write(chunk: Buffer, _encoding, done) {
      parts.push(chunk);
      done();
    },
  });
  return { stream, text: () => Buffer.concat(parts).toString('utf8') };
}
