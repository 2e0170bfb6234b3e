/**
 * What the operator adds to a Cluster that leaves it out: the password of the owner, certificates
 * and an image. CloudNativePG makes the secrets and leaves the spec as it is.
 */
import { randomBytes } from 'node:crypto';
import { Type } from 'typebox';
import { issueServerCertificate, makeAuthority } from '../../test/probe.ts';
import type { Api } from './api.ts';
import { secretOf } from './authority.ts';
import { CLUSTERS, pathIn } from './cluster.ts';

const SPARSE = Type.Object({
  metadata: Type.Object({ name: Type.String(), namespace: Type.String() }),
  spec: Type.Object({
    imageName: Type.Optional(Type.String()),
    bootstrap: Type.Object({ initdb: Type.Object({ owner: Type.String() }) }),
  }),
});

/** @param image of PostgreSQL, for Clusters without one */
export async function giveDefaults(api: Api, image: string): Promise<void> {
  for (const { metadata, spec } of await api.list(`${CLUSTERS}/clusters`, SPARSE)) {
    if (spec.imageName !== undefined) continue;
    const { name, namespace } = metadata;
    const host = `${name}-rw`;
    const secret = (suffix: string, type: string, stringData: Record<string, string>) =>
      api.create(pathIn(namespace, 'secrets'), {
        metadata: { name: `${name}-${suffix}`, labels: { 'cnpg.io/reload': 'true' } },
        type,
        stringData,
      });
    await secret('app', 'kubernetes.io/basic-auth', {
      username: spec.bootstrap.initdb.owner,
      password: randomBytes(32).toString('hex'),
    });
    const authority = await makeAuthority();
    const issued = await issueServerCertificate(authority, [host, `${host}.${namespace}`]);
    // That of its clients too.
    await secret('ca', 'Opaque', secretOf(authority));
    await secret('server', 'kubernetes.io/tls', {
      'tls.crt': issued.certificatePem,
      'tls.key': issued.keyPem,
    });
    // Last: it says that the secrets are there.
    await api.merge(`${CLUSTERS}/namespaces/${namespace}/clusters/${name}`, {
      spec: {
        imageName: image,
        inheritedMetadata: { labels: {} },
        postgresql: { parameters: {} },
        bootstrap: {
          initdb: {
            secret: { name: `${name}-app` },
            encoding: 'UTF8',
            localeCollate: 'C',
            localeCType: 'C',
            postInitSQL: [],
          },
        },
        certificates: { serverCASecret: `${name}-ca`, serverTLSSecret: `${name}-server` },
        managed: { services: { disabledDefaultServices: [], additional: [] } },
      },
    });
  }
}
