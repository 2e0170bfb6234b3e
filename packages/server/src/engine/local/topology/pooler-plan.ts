/** The desired connection pooler of a service. */
import { join } from 'node:path';
import { readOrNull } from '../../../lib/processes.ts';
import type { InstancePaths } from '../host/layout.ts';
import type { Listener } from '../network/listener.ts';
import type { Installation } from '../postgres/installations.ts';
import { serverSettings } from '../../../domain/postgres/settings.ts';
import { loadedExtensions } from '../../../domain/postgres/extension-rules.ts';
import { localPoolerConf } from '../proxy/pooler-files.ts';
import { asksEachDatabase } from '../../pooler/conf.ts';
import type { PoolerPlan, Poolers } from '../proxy/pooler.ts';
import type { PlacedSpec } from '../../postgres/decisions/placed-spec.ts';

/** The server that a pooler is in front of. */
type Behind = {
  /** Where its socket and its certificate are. */
  readonly paths: InstancePaths;
  /** A server that knows its databases. */
  readonly key: string;
  readonly port: number;
  readonly listener: Listener;
  readonly installation: Installation | null;
};

/** The desired pooler of a service; null: none, or none can be had. */
export async function planPooler(
  { machine: { pgbouncer: program, layout }, databases }: Poolers,
  spec: PlacedSpec,
  { paths, key, port: serverPort, listener, installation }: Behind,
): Promise<PoolerPlan | null> {
  if (spec.pooler === null) databases.forget(spec.id);
  const certificatePem =
    spec.pooler === null ? null : await readOrNull(join(paths.config, 'server.crt'));
  if (spec.pooler === null || program === null || installation === null || certificatePem === null)
    return null;
  const { max_connections: maxConnections } = serverSettings({
    size: spec.size,
    major: installation.major,
    extensions: loadedExtensions(spec),
    storageGb: spec.storageGb,
  });
  const { port } = spec.pooler;
  const conf = localPoolerConf({
    paths: layout.service(spec.id),
    version: program.version,
    listen: { address: listener.address, port },
    allowedNetworks: listener.allowedNetworks,
    databases: asksEachDatabase(program.version) ? await databases.of(spec.id, key) : null,
    server: {
      paths,
      port: serverPort,
      major: installation.major,
      maxConnections: Number(maxConnections),
    },
    certificatePem,
  });
  return { program, port, conf, listener };
}
