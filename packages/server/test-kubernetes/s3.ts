/** A real S3 server, versitygw, which the pods and this machine reach by TLS. */
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import {
  issueServerCertificate,
  newId,
  type ObjectStore,
  openCertificateAuthority,
} from '../test/probe.ts';
import { until } from '../test/until.ts';

const BUILD = fileURLToPath(new URL('../../../tools/repository-servers/build.sh', import.meta.url));
const BUCKET = 'backups';
const [KEY_ID, KEY] = ['key-of-the-test', 'secret-of-the-test'];

export type S3 = Awaited<ReturnType<typeof startS3>>;

/** @param host the address of this machine for the node */
export async function startS3(host: string, port: number) {
  const { stdout } = await promisify(execFile)(BUILD);
  const directory = await mkdtemp(join(tmpdir(), 'hd-'));
  const objects = join(directory, 'data', BUCKET);
  await mkdir(objects, { recursive: true });
  const authority = await openCertificateAuthority(join(directory, 'ca'));
  const certificate = await issueServerCertificate(authority, [host]);
  const [cert, key] = [join(directory, 'tls.crt'), join(directory, 'tls.key')];
  await writeFile(cert, certificate.certificatePem);
  await writeFile(key, certificate.keyPem, { mode: 0o600 });
  await writeFile(join(directory, 'key'), `${KEY}\n`, { mode: 0o600 });
  let child: ChildProcess | null = null;
  const start = async (): Promise<void> => {
    const args = ['--port', `${host}:${port}`, '--cert', cert, '--key', key, '--quiet'];
    const begun = spawn(
      join(stdout.trim(), 'versitygw'),
      [...args, 'posix', join(directory, 'data')],
      {
        stdio: 'ignore',
        env: { ROOT_ACCESS_KEY: KEY_ID, ROOT_SECRET_KEY: KEY },
      },
    );
    child = begun;
    const isReady = () => speaksTls(host, port);
    await until('versitygw answers', async () => begun.exitCode !== null || (await isReady()));
    if (begun.exitCode !== null) throw new Error(`versitygw ended with ${begun.exitCode}`);
  };
  const stop = async (): Promise<void> => {
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  };
  await start();
  const place = { endpoint: `https://${host}:${port}`, bucket: BUCKET, region: 'us-east-1' };
  return {
    start,
    stop,
    /** A place in the bucket of its own. */
    newStore: (): ObjectStore => ({
      ...place,
      id: newId(),
      sinceMs: Date.now() - 1000,
      keyId: KEY_ID,
      key: KEY,
      caPem: authority.certificatePem,
    }),
    /** The options of `howdah region object-store`. */
    options: [
      '--s3',
      place.endpoint,
      '--bucket',
      BUCKET,
      '--region',
      place.region,
      '--key-id',
      KEY_ID,
      '--key-file',
      join(directory, 'key'),
      '--ca-file',
      join(directory, 'ca', 'ca.pem'),
    ],
    /** The files that objects of a folder are. @param folder without the bucket */
    filesIn: async (folder: string): Promise<string[]> => {
      const path = join(objects, folder);
      const found = await readdir(path, { recursive: true, withFileTypes: true }).catch(() => []);
      return found
        .filter((file) => file.isFile())
        .map((file) => join(file.parentPath, file.name).slice(path.length + 1))
        .toSorted();
    },
    /** @param file of {@link filesIn} */
    remove: (folder: string, file: string): Promise<void> => rm(join(objects, folder, file)),
    close: async (): Promise<void> => {
      await stop();
      await rm(directory, { recursive: true });
    },
  };
}

function speaksTls(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, rejectUnauthorized: false }, () => {
      socket.destroy();
      resolve(true);
    }).on('error', () => resolve(false));
  });
}
