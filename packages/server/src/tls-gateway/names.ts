/** The DNS of the cluster that the gateway runs in. */
import { readFile } from 'node:fs/promises';
import { Resolver } from 'node:dns/promises';
import type { Names } from './routes.ts';

export type NamesOptions = Readonly<{
  /** Addresses of DNS servers; null: those of the machine. */
  dns: readonly string[] | null;
  /** The domain of the names of the cluster; null: that of the machine's search path. */
  clusterDomain: string | null;
}>;

const LOOKUP_MS = 2000;
const TRIES = 2;
const USUAL_DOMAIN = 'cluster.local';

export async function clusterNames({
  dns,
  clusterDomain,
}: NamesOptions): Promise<Readonly<{ names: Names; clusterDomain: string }>> {
  const resolver = new Resolver({ timeout: LOOKUP_MS, tries: TRIES });
  if (dns !== null) resolver.setServers(dns);
  return {
    names: {
      resolveCname: (name) => resolver.resolveCname(name),
      resolve4: (name) => resolver.resolve4(name),
      resolve6: (name) => resolver.resolve6(name),
    },
    clusterDomain: clusterDomain ?? (await findClusterDomain()),
  };
}

/** Kubernetes gives each pod the search path NAMESPACE.svc.DOMAIN svc.DOMAIN DOMAIN. */
async function findClusterDomain(): Promise<string> {
  const text = await readFile('/etc/resolv.conf', 'utf8').catch(() => '');
  return /^search\s.*?(?:^|\s)svc\.(\S+)/m.exec(text)?.[1] ?? USUAL_DOMAIN;
}
