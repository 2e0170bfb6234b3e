/**
 * Finds the service of a name. Routes are names in the DNS of the cluster: the control plane makes
 * a Service of the type ExternalName for each endpoint. So the gateway needs no right in
 * Kubernetes, and each change holds at once (docs/decisions/0073-tls-gateway.md).
 */
import pLimit from 'p-limit';

/** The part of `node:dns` that is used: names and addresses of a name. */
export type Names = Readonly<{
  resolveCname: (name: string) => Promise<string[]>;
  resolve4: (name: string) => Promise<string[]>;
  resolve6: (name: string) => Promise<string[]>;
}>;

/** Where a client is connected to, and whose it is. */
export type Route = Readonly<{ address: string; project: string; service: string }>;

export type Routes = ReturnType<typeof createRoutes>;

/** The namespace of the gateway, and of the names of its routes. */
const NAMESPACE = 'howdah-gateway';

/** Many clients may ask for names that nobody has. */
const LOOKUPS_AT_A_TIME = 32;
const WAITING_LOOKUPS = 512;
const KEPT_NAMES = 4096;
/** Shorter than it takes to make a service again. */
const KEPT_MS = 5000;
const MISS_KEPT_MS = 1000;

/** Too many names are being looked up. */
export class TooManyLookups extends Error {}

/**
 * @param clusterDomain of the names of Services: `cluster.local`
 * @param nowMs a monotonic clock
 */
export function createRoutes(names: Names, clusterDomain: string, nowMs: () => number) {
  const found = createExpiring<Route>(KEPT_NAMES, KEPT_MS, nowMs);
  const missing = createExpiring<null>(KEPT_NAMES, MISS_KEPT_MS, nowMs);
  const asked = new Map<string, Promise<Route | null>>();
  const limit = pLimit(LOOKUPS_AT_A_TIME);
  const lookUp = async (label: string): Promise<Route | null> => {
    const route = await findRoute(names, clusterDomain, label);
    if (route === null) missing.set(label, null);
    else found.set(label, route);
    return route;
  };
  return {
    /**
     * @param serverName the name that a client asks for, in lower case
     * @returns null: no service has it
     * @throws TooManyLookups; Error of DNS when it does not answer
     */
    find: async (serverName: string): Promise<Route | null> => {
      const label = labelIn(serverName);
      if (label === null || missing.get(label) !== undefined) return null;
      const known = found.get(label);
      if (known !== undefined) return known;
      const before = asked.get(label);
      if (before !== undefined) return before;
      if (asked.size >= WAITING_LOOKUPS) throw new TooManyLookups('too many names are looked up');
      const answer = limit(lookUp, label).finally(() => asked.delete(label));
      asked.set(label, answer);
      return answer;
    },
  };
}

/** The first label, ID or ID-pooler, if a domain follows it. Nothing else is asked for. */
function labelIn(serverName: string): string | null {
  return /^([a-z0-9]{10}(?:-pooler)?)\.[a-z0-9.-]{1,240}$/.exec(serverName)?.[1] ?? null;
}

/** The name of the route to an endpoint. @param label ID or ID-pooler */
const routeName = (label: string): string => `db-${label}.${NAMESPACE}.svc`;

async function findRoute(
  names: Names,
  clusterDomain: string,
  label: string,
): Promise<Route | null> {
  const [target = ''] = await orNone(names.resolveCname(`${routeName(label)}.${clusterDomain}`));
  const project = projectOf(target, label);
  if (project === null) return null;
  const host = `${target}.${clusterDomain}`;
  const [address] = await orNone(names.resolve4(host));
  const [other] = address === undefined ? await orNone(names.resolve6(host)) : [address];
  return other === undefined ? null : { address: other, project, service: label };
}

/**
 * The project of a target; null: it is not the Service of that endpoint. Nothing else is connected
 * to, so that the gateway is no open proxy whatever the DNS says.
 */
function projectOf(target: string, label: string): string | null {
  const id = label.slice(0, 10);
  const service = label === id ? `${id}-endpoint` : label;
  const [, name, project] = /^[rs]-([a-z0-9-]+)\.howdah-([a-z0-9]{10})\.svc$/.exec(target) ?? [];
  return name === service ? (project ?? null) : null;
}

/** No such name, and a name without records of the kind. */
const NONE: readonly unknown[] = ['ENOTFOUND', 'ENODATA'];

async function orNone(answer: Promise<string[]>): Promise<string[]> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof Error && 'code' in error && NONE.includes(error.code)) return [];
    throw error;
  }
}

/** A map of values that are forgotten after a while, and when there are too many. */
export function createExpiring<T>(most: number, keptMs: number, nowMs: () => number) {
  const entries = new Map<string, Readonly<{ value: T; endMs: number }>>();
  return {
    get: (key: string): T | undefined => {
      const entry = entries.get(key);
      if (entry === undefined || entry.endMs > nowMs()) return entry?.value;
      entries.delete(key);
      return undefined;
    },
    set: (key: string, value: T): void => {
      entries.delete(key);
      for (const oldest of entries.keys()) {
        if (entries.size < most) break;
        entries.delete(oldest);
      }
      entries.set(key, { value, endMs: nowMs() + keptMs });
    },
  };
}
