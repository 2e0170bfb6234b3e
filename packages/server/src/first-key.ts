/** The first project and key of an installation, and the link that opens the console with them. */
import { rename } from 'node:fs/promises';
import { issueToken, linkPath } from './api/console.ts';
import { ConfigError, type Config } from './config.ts';
import { apiUrl, credentialsPath, readCredentials, type Credentials } from './installation.ts';
import { writeDurably } from './lib/durable.ts';
import { newId } from './lib/ids.ts';
import { isErrno } from './lib/processes.ts';
import { sha256 } from './lib/secret.ts';
import { newPublicKey, newSecret } from './services/keys.ts';
import type { Store } from './store/database.ts';
import { insertKey, isKey } from './store/keys.ts';
import { anyProject, insertProject } from './store/projects.ts';

/** At the first start: a project and an admin key. Only `credentials.json` holds its secret. */
export async function ensureFirstKey(store: Store, config: Config): Promise<void> {
  if (await anyProject(store.db)) {
    await followApiUrl(config);
    return;
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
}

async function makeCredentials(config: Config): Promise<Credentials> {
  const credentials: Credentials = {
    api_url: apiUrl(config),
    project_id: newId(),
    public_key: newPublicKey(),
    secret_key: newSecret(),
  };
  await keepFormerCredentials(config.home);
  // The file first: a start interrupted between the two writes it again with another key.
  await writeDurably(
    credentialsPath(config.home),
    `${JSON.stringify(credentials, null, 2)}\n`,
    0o600,
  );
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

/** An empty metadata database may mean another DATABASE_URL: the former key is moved aside, not overwritten. */
async function keepFormerCredentials(home: string): Promise<void> {
  const path = credentialsPath(home);
  const aside = `${path}.until-${new Date().toISOString().replaceAll(/[-:.]/g, '')}`;
  await rename(path, aside).catch((error: unknown) => {
    if (!isErrno(error, 'ENOENT')) throw error;
  });
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

/** A link that opens the web console once, with the key of `credentials.json`; where that is no more, the console's address. */
export async function consoleLink(store: Store, config: Config): Promise<string> {
  const credentials = await readCredentials(config.home);
  const known = credentials !== null && (await isKey(store.db, credentials.public_key));
  const path = known
    ? linkPath((await issueToken(store, 'link', credentials.public_key)).token)
    : '/';
  return new URL(path, apiUrl(config)).href;
}
