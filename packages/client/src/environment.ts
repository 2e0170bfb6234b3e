/**
 * Reads the environment variables of Howdah as people, shells, CI systems and .env files write
 * them. A value that cannot be meant so ends with one sentence: what was found, and what to do.
 */
import { statSync } from 'node:fs';
import { homedir } from 'node:os';
import { resolve } from 'node:path';

/** A variable has a value that cannot be used; the message shows no secret. */
export class EnvironmentError extends Error {
  override readonly name = 'EnvironmentError';
}

const BASE_PATH = '/public/api/v1';

/**
 * The value of a variable, without a line end or a byte order mark that a file or a secret store
 * has added to it.
 *
 * @returns undefined: it is not set
 * @throws EnvironmentError
 */
export function readText(name: string, value: string | undefined): string | undefined {
  if (value === undefined) return undefined;
  const text = value.replace(/^\uFEFF/, '').trim();
  if (/^(["']).*\1$/s.test(text))
    throw new EnvironmentError(
      `${name}: begins and ends with a quotation mark, which is a part of the value here; ` +
        'remove it (docker run --env-file and some CI systems keep it)',
    );
  // oxlint-disable-next-line no-control-regex
  if (/[\u0000-\u001f\u007f]/.test(text))
    throw new EnvironmentError(
      `${name}: has a line end or another control character in it; it must be one line`,
    );
  return text;
}

/** As {@link readText}; an unset secret of a CI system is an empty value. */
function readNonEmpty(name: string, value: string | undefined): string | undefined {
  const text = readText(name, value);
  if (text === '')
    throw new EnvironmentError(
      `${name}: is empty, as a secret that is not set is in many CI systems; ` +
        `set it, or unset it (unset ${name}) to use credentials.json`,
    );
  return text;
}

/** The address of an API, without a slash at its end. @throws EnvironmentError */
export function readApi(value: string | undefined): string | undefined {
  const text = readNonEmpty('HD_API', value);
  if (text === undefined) return undefined;
  const refuse = (why: string): never => {
    throw new EnvironmentError(
      `HD_API: ${why}; an address is like https://db.example.com:8080${BASE_PATH}`,
    );
  };
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(text))
    refuse(
      `found ${JSON.stringify(text)}, which has no scheme: write http:// or https:// before it`,
    );
  if (!URL.canParse(text)) refuse(`found ${JSON.stringify(text)}, which is no URL`);
  const url = new URL(text);
  if (url.username !== '' || url.password !== '')
    refuse('has a user name or a password in it; the key belongs into HD_KEY');
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    refuse(`found the scheme ${url.protocol}// ; the API speaks http or https`);
  if (url.search !== '' || url.hash !== '')
    refuse(`found ${JSON.stringify(text)}; nothing may follow its path`);
  if (/\/projects(\/|$)/.test(url.pathname))
    refuse(`found ${JSON.stringify(text)}, which is the address of a project: that is HD_PROJECT`);
  const path = url.pathname.replace(/\/+$/, '');
  return `${url.origin}${path === '' ? BASE_PATH : path}`;
}

/** `<public_key>:<secret_key>`. @throws EnvironmentError, without the key */
export function readKey(value: string | undefined): string | undefined {
  const text = readNonEmpty('HD_KEY', value);
  if (text === undefined) return undefined;
  const why = /^bearer\s/i.test(text)
    ? 'begins with Bearer, which belongs to the header only'
    : /\s/.test(text)
      ? 'has a blank in it'
      : /^[\u0021-\u007e]+:[\u0021-\u007e]+$/.test(text)
        ? null
        : 'is not of that form';
  if (why === null) return text;
  throw new EnvironmentError(`HD_KEY: ${why}; a key is PUBLIC:SECRET, as howdah env prints it`);
}

/** The project that a variable names: its id, and the API of its address if it is one. */
export type NamedProject = { id: string; apiOrigin: string | null };

/** An id, or an address that ends with it. @throws EnvironmentError */
export function readProject(value: string | undefined): NamedProject | undefined {
  const text = readNonEmpty('HD_PROJECT', value)?.replace(/\/+$/, '');
  if (text === undefined) return undefined;
  const [, address, id = text] = /^(.*)\/projects\/([^/]*)$/.exec(text) ?? [];
  const isAddress = address !== undefined && /^https?:\/\//i.test(address) && URL.canParse(address);
  if (!/^[\w-]+$/.test(id) || (address !== undefined && !isAddress))
    throw new EnvironmentError(
      `HD_PROJECT: found ${JSON.stringify(text)}; it is the id of a project, ` +
        'or an address that ends with /projects/ID',
    );
  return { id, apiOrigin: address === undefined ? null : new URL(address).origin };
}

/** Whether two addresses are of one API, however they name this machine. */
export function isSameOrigin(one: string, other: string): boolean {
  const origin = (text: string): string =>
    new URL(text).origin.replace(/\/\/(localhost|\[::1\])(?=:|$)/, '//127.0.0.1');
  return URL.canParse(one) && URL.canParse(other) && origin(one) === origin(other);
}

/**
 * The settings of a control plane, `HOWDAH_…`, each as {@link readText}. @throws EnvironmentError
 */
export function readSettings(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(
    Object.entries(env).flatMap(([name, value]) =>
      name.startsWith('HOWDAH_') ? [[name, readText(name, value)]] : [],
    ),
  );
}

/** The directory of the installation; default: `~/.howdah`. @throws EnvironmentError */
export function readHome(value: string | undefined): string {
  const path = resolveHome(readText('HOWDAH_HOME', value) || '~/.howdah');
  const problem = problemOfHome(path);
  if (problem !== null) throw new EnvironmentError(problem);
  return path;
}

/** The absolute path, where `~` is that of the user. */
function resolveHome(text: string): string {
  return resolve(text.replace(/^~(?=\/|$)/, homedir()));
}

/** Why a path cannot be the directory of an installation; null: it can. */
export function problemOfHome(path: string): string | null {
  try {
    const found = statSync(path, { throwIfNoEntry: false });
    return found === undefined || found.isDirectory()
      ? null
      : `HOWDAH_HOME: ${path} is a file; name a directory`;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return `HOWDAH_HOME: ${path} cannot be read: ${reason}; name a directory`;
  }
}
