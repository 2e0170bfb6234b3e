/** Examines the object store of a region, and the plugin that archives in it. */
import type { Finding } from '@howdah/contract';
import type { Kube } from './api/client.ts';
import { KINDS } from './api/kinds.ts';
import { DEPLOYMENT, isServed } from './doctor.ts';
import { locationOf, type ObjectStore } from '../object-store.ts';
import { StoreError, tryStore } from './s3.ts';

const DEFINITION = 'objectstores.barmancloud.cnpg.io';
const INSTALL =
  'install the Barman Cloud plugin beside the operator: ' +
  'https://cloudnative-pg.io/plugin-barman-cloud/docs/installation/';

type Stored = Readonly<{
  code: string;
  /** Whether a store is set. */
  isSet: boolean;
  /** null: none is, or its secrets cannot be read. */
  store: ObjectStore | null;
}>;

/** Without a store, the plugin is not needed. */
export async function examineObjectStore(kube: Kube, stored: Stored): Promise<Finding[]> {
  if (!stored.isSet)
    return [
      {
        what: 'object store',
        state: 'note',
        found: 'none is set, so no moment of the past can be forked',
        remedy: `howdah region object-store ${stored.code} --s3 https://HOST --bucket NAME …`,
      },
    ];
  return [await examineStore(stored), await examineResources(kube), await examinePlugin(kube)];
}

async function examineStore({ code, store }: Stored): Promise<Finding> {
  const what = 'object store';
  if (store === null)
    return {
      what,
      state: 'missing',
      found: 'its key cannot be read: HOWDAH_HOME/secrets.key is not the file it was',
      remedy:
        'restore that from a backup of the control plane, or howdah region object-store ' +
        `${code} …`,
    };
  try {
    await tryStore(store);
    const found = `${locationOf(store)}, lists, writes and deletes for the control plane`;
    return { what, state: 'ok', found };
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    return {
      what,
      state: 'missing',
      found: `${error.message}; WAL waits on the volumes of services meanwhile`,
      remedy:
        'start it, let the key list, read, write and delete, or howdah region object-store ' +
        `${code} …`,
    };
  }
}

async function examineResources(kube: Kube): Promise<Finding> {
  const what = 'Barman Cloud resources';
  return (await isServed(kube, DEFINITION))
    ? { what, state: 'ok', found: `${DEFINITION}/v1` }
    : { what, state: 'missing', found: `${DEFINITION}/v1 is not served`, remedy: INSTALL };
}

async function examinePlugin(kube: Kube): Promise<Finding> {
  const what = 'Barman Cloud plugin';
  const all = { kind: KINDS.deployment, namespace: null, name: null };
  const { items } = await kube.list(all, DEPLOYMENT, { app: 'barman-cloud' });
  const [plugin] = items;
  if (plugin === undefined)
    return { what, state: 'missing', found: 'no Deployment of it', remedy: INSTALL };
  const { name, namespace } = plugin.metadata;
  const found = `${namespace}/${name}`;
  if ((plugin.status?.readyReplicas ?? 0) > 0) return { what, state: 'ok', found };
  return {
    what,
    state: 'missing',
    found: `${found}, is not ready; CloudNativePG changes no archived service meanwhile`,
    remedy: `kubectl --namespace ${namespace} describe deployment ${name}`,
  };
}
