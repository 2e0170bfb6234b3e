/** The first project and key of an installation, and the link that opens the console with them. */
import { rm } from 'node:fs/promises';
import { issueToken, linkPath } from './api/console.ts';
import { ConfigError, type Config } from './config.ts';
import {
  apiUrl,
  credentialsPath,
  firstKeyPath,
  readCredentials,
  type Credentials,
} from './installation.ts';
import { renameDurably, writeDurably } from './lib/durable-files.ts';
import { newId } from './lib/ids.ts';
import { isErrno } from './lib/processes.ts';
import { sha256 } from './lib/secret.ts';
import { newPublicKey, newSecret } from './services/keys.ts';
import type { Store } from './store/database.ts';
import { insertKey, isKey } from './store/keys.ts';
import { findOperatorProject, insertProject } from './store/projects.ts';

/**
 * At the first start: a project and an admin key. Only `credentials.json` holds its secret.
 *
 * @returns the operator's project
 */
export async function ensureFirstKey(store: Store, config: Config): Promise<string> {
  const project = await findOperatorProject(store.db);
  if (project !== null) {
    await finishFirstKey(store, config.home);
    await followApiUrl(config);
    return project;
  }
  const credentials = await (config.localRegion ? makeCredentials : givenCredentials)(config);
  await store.db.transaction().execute(async (tx) => {
    await insertProject(tx, { id: credentials.project_id, name: 'default', operator: true });
    await insertKey(tx, {
      publicKey: credentials.public_key,
      secretHash: sha256(credentials.secret_key),
      projectId: credentials.project_id,
      name: 'first admin key',
      role: 'admin',
    });
  });
  if (config.localRegion)
    await renameDurably(firstKeyPath(config.home), credentialsPath(config.home));
  return credentials.project_id;
}

async function makeCredentials(config: Config): Promise<Credentials> {
  const credentials: Credentials = {
    api_url: apiUrl(config),
    project_id: newId(),
    public_key: newPublicKey(),
    secret_key: newSecret(),
  };
  // The file first: a start that is interrupted before the database has the key makes another one.
  await writeDurably(firstKeyPath(config.home), `${JSON.stringify(credentials, null, 2)}\n`, 0o600);
  return credentials;
}

/** Those that were made for all control planes of an installation. */
async function givenCredentials({ home }: Config): Promise<Credentials> {
  const credentials = await readCredentials(home);
  if (credentials !== null) return credentials;
  throw new ConfigError(
    `${credentialsPath(home)}: lacks api_url, project_id, public_key or secret_key; ` +
      'make it again: deploy/kubernetes/make-files',
  );
}

/** A first start that was interrupted: the metadata database has the key, or never got it. */
async function finishFirstKey(store: Store, home: string): Promise<void> {
  const pending = await readCredentials(home, firstKeyPath);
  if (pending === null) return;
  if (await isKey(store.db, pending.public_key))
    await renameDurably(firstKeyPath(home), credentialsPath(home));
  else await rm(firstKeyPath(home));
}

/** The API may have moved to another port since. */
async function followApiUrl(config: Config): Promise<void> {
  if (!config.localRegion) return;
  const credentials = await readCredentials(config.home);
  if (credentials === null || credentials.api_url === apiUrl(config)) return;
  const text = `${JSON.stringify({ ...credentials, api_url: apiUrl(config) }, null, 2)}\n`;
  await writeDurably(credentialsPath(config.home), text, 0o600).catch((error: unknown) => {
    // The next start writes it: the key is the same, and --port names the address meanwhile.
    if (!isErrno(error, 'ENOSPC', 'EDQUOT')) throw error;
  });
}

/**
 * A link that opens the web console once, with the key of `credentials.json`; where that is no
 * more, the console's address.
 */
export async function consoleLink(store: Store, config: Config): Promise<string> {
  const credentials = await readCredentials(config.home);
  const known = credentials !== null && (await isKey(store.db, credentials.public_key));
  const path = known
    ? linkPath((await issueToken(store, 'link', credentials.public_key)).token)
    : '/';
  return new URL(path, apiUrl(config)).href;
}
