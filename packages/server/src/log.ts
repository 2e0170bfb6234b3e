import { existsSync, mkdirSync, renameSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { destination, pino, type Logger } from 'pino';

const ROTATE_BYTES = 20e6;

/** The control plane's log: JSON lines in `HOME/logs/control.log`. A large one is put aside at the start. */
export function openLog(home: string): { log: Logger; path: string } {
  const directory = join(home, 'logs');
  const path = join(directory, 'control.log');
  mkdirSync(home, { recursive: true, mode: 0o755 });
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  if (existsSync(path) && statSync(path).size > ROTATE_BYTES) renameSync(path, `${path}.1`);
  const log = pino(
    { redact: ['req.headers.authorization', '*.first_verifier', '*.password'] },
    destination({ dest: path, mode: 0o600, sync: false }),
  );
  return { log, path };
}
