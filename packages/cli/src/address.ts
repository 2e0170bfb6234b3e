/** The address of a service, and how clients write it. */
import type { Schemas } from '@howdah/client';
import { uriOf } from '@howdah/contract/connect';
import { quotedWord } from '@howdah/contract/shell';
import { ADMIN_ROLE, DATABASE_NAME } from '@howdah/contract/types';
import type { Variables } from './output.ts';

/** A service or a read replica set. */
type Reached = Pick<Schemas['Service'], 'endpoint' | 'vpc_endpoint' | 'connection_pooler'>;

/** The parameters with which a PostgreSQL client connects. */
export type Address = {
  host: string;
  port: number;
  /** Only the answer to a create, a fork or a lease has it. */
  password?: string;
  /** A lease may have a role and a database of its own; by default those of every service. */
  user?: string;
  database?: string;
  /** The CA certificate that verifies the server's; null: it is not on this machine. */
  ca: string | null;
};

/** The endpoint for clients: the one in its VPC, if it is in one. */
export function endpointOf({ endpoint, vpc_endpoint: inside }: Reached): Schemas['Endpoint'] {
  return inside ?? endpoint;
}

/** The endpoint of its connection pooler; undefined: it has none. */
export function poolerOf({
  vpc_endpoint: inside,
  connection_pooler: pool,
}: Reached): Schemas['Endpoint'] | undefined {
  return pool && { host: inside?.host ?? pool.endpoint.host, port: pool.endpoint.port };
}

/** From where a service in a VPC is reached; null: from everywhere. */
export function whoConnects({ vpc_endpoint: inside }: Reached): string | null {
  return inside === undefined
    ? null
    : `only clients in the VPC ${inside.vpc_id} and in its peers can connect: docs/vpc.md says ` +
        'how a machine or a container joins it; howdah query reads from everywhere';
}

/** The URL with the strictest possible check of the server's certificate. */
export function urlOf(address: Address): string {
  return uriOf(address, address.password ?? null);
}

/**
 * Hints for clients that do not read the URL as libpq does. postgres.js sends unknown parameters to
 * the server.
 */
export function clientHints({ ca }: Pick<Address, 'ca'>): string[] {
  return ca === null
    ? [
        'psql and psycopg take this URL as it is. Node needs the CA certificate: ' +
          'curl "$HD_API/ca.pem" -o ca.pem',
        '  pg           sslmode=verify-full&sslrootcert=ca.pem in place of sslmode=require',
        '  postgres.js  sslmode=verify-full in place of sslmode=require, ' +
          'and NODE_EXTRA_CA_CERTS=ca.pem in the environment',
      ]
    : [
        'psql, psycopg and pg (Node) take this URL as it is.',
        '  postgres.js  leave out &sslrootcert=…, ' +
          `and set NODE_EXTRA_CA_CERTS=${quotedWord(ca)} in the environment`,
      ];
}

/** The variables of libpq, and DATABASE_URL for most other clients. */
export function variablesOf(address: Address): Variables {
  return {
    PGHOST: address.host,
    PGPORT: String(address.port),
    PGUSER: address.user ?? ADMIN_ROLE,
    PGDATABASE: address.database ?? DATABASE_NAME,
    ...(address.password === undefined ? {} : { PGPASSWORD: address.password }),
    ...(address.ca === null
      ? { PGSSLMODE: 'require' }
      : { PGSSLMODE: 'verify-full', PGSSLROOTCERT: address.ca }),
    DATABASE_URL: urlOf(address),
  };
}
