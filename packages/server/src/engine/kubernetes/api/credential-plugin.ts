/**
 * Runs the program that a kubeconfig names for credentials, and keeps them until they expire.
 * Managed clusters hand out such kubeconfigs. Protocol of these programs:
 * https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
 */
import { spawn } from 'node:child_process';
import type { Readable } from 'node:stream';
import { createSecureContext } from 'node:tls';
import { messageOf } from '@howdah/contract/thrown';
import { Type, type Static } from 'typebox';
import { Value } from 'typebox/value';
import { environmentOfPrograms } from '../../../lib/environment.ts';
import { signal } from '../../../lib/processes.ts';
import { lastLines } from '../../../lib/run.ts';

/** A program with all that it is started with. */
export type Plugin = Readonly<{
  /** Absolute: nothing is searched for. */
  path: string;
  args: readonly string[];
  env: Readonly<Record<string, string>>;
  /** The program reads what is asked for in KUBERNETES_EXEC_INFO. */
  asked: Readonly<{ apiVersion: string; kind: 'ExecCredential'; spec: object }>;
  /** How the program is installed, in the words of the kubeconfig. */
  installHint: string | null;
}>;

/** Printed credentials: a token, a certificate with its key, or both. */
export type Issued = Readonly<{
  token: string | null;
  certificate: Readonly<{ certificatePem: string; keyPem: string }> | null;
  /** Infinity: until the cluster refuses it. */
  expiresMs: number;
}>;

/** A program printed no credentials; the message has its path, and nothing of its output. */
export class NoCredentials extends Error {}

/** Programs ask a service of the cloud, which takes seconds. */
const DEADLINE_MS = 30_000;
/** Runs are this far apart, unless credentials expire sooner: a cluster may refuse all of them. */
const AGAIN_MS = 10_000;
/** Others are asked for this long before credentials expire. */
const EARLY_MS = 60_000;
const MAX_BYTES = 1024 * 1024;
const MAX_HINT = 300;

export type CredentialPlugin = Readonly<{
  /** @throws NoCredentials */
  read: () => Promise<Issued>;
  /** The cluster does not accept these, although they have not expired. */
  refuse: (issued: Issued) => void;
}>;

export function createPlugin(plugin: Plugin, deadlineMs = DEADLINE_MS): CredentialPlugin {
  let current: Issued | null = null;
  let running: Promise<Issued> | null = null;
  let failure: unknown = null;
  let againMs = 0;

  /** Requests that come meanwhile wait for the same run. */
  const start = (): Promise<Issued> => {
    running = obtain(plugin, deadlineMs)
      .then(
        (issued) => {
          failure = null;
          current = issued;
          return issued;
        },
        (error: unknown) => {
          failure = error;
          throw error;
        },
      )
      .finally(() => {
        running = null;
        againMs = Date.now() + AGAIN_MS;
      });
    return running;
  };

  return {
    read: async () => {
      const now = Date.now();
      if (current !== null && now < current.expiresMs) {
        const isLate = now >= current.expiresMs - EARLY_MS;
        // Nobody waits for it, and a failure is seen when there is nothing else to use.
        if (isLate && running === null && now >= againMs) start().catch(() => undefined);
        return current;
      }
      if (running !== null) return running;
      if (failure !== null && now < againMs) throw failure;
      return start();
    },
    refuse: (issued) => {
      if (current === issued && Date.now() >= againMs) current = null;
    },
  };
}

async function obtain(plugin: Plugin, deadlineMs: number): Promise<Issued> {
  try {
    return issuedBy(await run(plugin, deadlineMs), plugin.asked.apiVersion);
  } catch (error) {
    const why = messageOf(error);
    throw new NoCredentials(`${plugin.path} ${why}`, { cause: error });
  }
}

/** @returns its standard output @throws Error without the name of the program */
function run({ path, args, env, asked, installHint }: Plugin, deadlineMs: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(path, args, {
      cwd: '/',
      env: { ...environmentOf(process.env), ...env, KUBERNETES_EXEC_INFO: JSON.stringify(asked) },
      stdio: ['ignore', 'pipe', 'pipe'],
      // A group of its own: many such programs are scripts, whose children would stay.
      detached: true,
    });
    const { pid, stdout, stderr } = child;
    const fail = (why: string): void => {
      clearTimeout(timer);
      if (pid !== undefined) signal(-pid, 'SIGKILL');
      stdout.destroy();
      stderr.destroy();
      reject(new Error(why));
    };
    const timer = setTimeout(() => fail(`does not end within ${deadlineMs / 1000} s`), deadlineMs);
    const tooMuch = (): void => fail(`prints more than ${MAX_BYTES} bytes`);
    const [printed, complaint] = [collect(stdout, tooMuch), collect(stderr, tooMuch)];
    child.on('error', ({ message }) => {
      const hint = installHint === null ? '' : `; ${shown(installHint.slice(0, MAX_HINT))}`;
      fail(`cannot be started: ${message}${hint}`);
    });
    child.on('close', (code, signalName) => {
      clearTimeout(timer);
      if (code === 0) return resolve(printed());
      const why = shown(lastLines(complaint()));
      reject(
        new Error(`ended with ${signalName ?? `code ${code}`}${why === '' ? '' : `: ${why}`}`),
      );
    });
  });
}

/** Programs of clouds need more of the environment than others: profiles, roles, proxies. */
function environmentOf(own: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const kept = Object.entries(own).filter(([name]) => !/^(HOWDAH|NODE)_/.test(name));
  return { ...Object.fromEntries(kept), ...environmentOfPrograms(own) };
}

/** @returns what has come, as text */
function collect(from: Readable, tooMuch: () => void): () => string {
  const chunks: Buffer[] = [];
  let bytes = 0;
  from.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > MAX_BYTES) return tooMuch();
    chunks.push(chunk);
  });
  return () => Buffer.concat(chunks).toString('utf8');
}

/** A foreign text without what a terminal would interpret. */
const shown = (text: string): string => text.replaceAll(/\p{C}/gu, ' ').trim();

const OptionalText = Type.Optional(Type.Union([Type.String(), Type.Null()]));
const CREDENTIAL = Type.Object({
  apiVersion: Type.String(),
  kind: Type.Literal('ExecCredential'),
  status: Type.Object({
    token: OptionalText,
    clientCertificateData: OptionalText,
    clientKeyData: OptionalText,
    expirationTimestamp: OptionalText,
  }),
});

/** @throws Error without the name of the program and without a secret */
function issuedBy(output: string, apiVersion: string): Issued {
  let parsed: unknown;
  try {
    parsed = JSON.parse(output);
  } catch {
    throw new Error('prints no JSON'); // the error of JSON.parse would have a part of the output
  }
  if (!Value.Check(CREDENTIAL, parsed)) {
    const [first] = Value.Errors(CREDENTIAL, parsed);
    const where = first?.instancePath.replaceAll('/', '.').slice(1) ?? '';
    throw new Error(`prints no ExecCredential: ${where === '' ? 'it' : where} ${first?.message}`);
  }
  if (parsed.apiVersion !== apiVersion)
    throw new Error(`does not print the version that its kubeconfig asks for, ${apiVersion}`);
  const { token, expirationTimestamp: expires } = parsed.status;
  const certificate = certificateIn(parsed.status);
  const hasToken = token !== undefined && token !== null && token !== '';
  if (!hasToken && certificate === null)
    throw new Error('prints neither a token nor a certificate with its key');
  if (hasToken && !/^[\x21-\x7e]+$/.test(token))
    throw new Error('prints a token with characters that no header can have');
  return {
    token: hasToken ? token : null,
    certificate,
    expiresMs: expires === undefined || expires === null ? Infinity : expiryOf(expires),
  };
}

function certificateIn(status: Static<typeof CREDENTIAL>['status']): Issued['certificate'] {
  const { clientCertificateData: certificatePem, clientKeyData: keyPem } = status;
  if (typeof certificatePem !== 'string' || typeof keyPem !== 'string') return null;
  try {
    createSecureContext({ cert: certificatePem, key: keyPem });
  } catch {
    throw new Error('prints a certificate and a key that are not a pair in PEM');
  }
  return { certificatePem, keyPem };
}

function expiryOf(text: string): number {
  const expiresMs = Date.parse(text);
  if (Number.isNaN(expiresMs)) throw new Error('prints an expirationTimestamp that is no time');
  if (expiresMs > Date.now()) return expiresMs;
  throw new Error(
    `prints credentials that expired at ${new Date(expiresMs).toISOString()}: ` +
      'compare the clock of this machine',
  );
}
