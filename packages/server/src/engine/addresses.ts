/** Where services listen: an engine chooses the endpoint of each, before its create is answered. */
import type { Endpoint } from './spec.ts';

/** The unreserved ports of a region, for one reservation. */
export type PortLedger = {
  /**
   * The next port that nothing has reserved. The port that is used is reserved in the same
   * transaction; the region is locked until then.
   *
   * @throws NoPortLeft when all were offered already, or none is left
   */
  take: () => Promise<number>;
};

/** All ports of a region are reserved or in use; the message is for users. */
export class NoPortLeft extends Error {}

/** The servers of a service or read replica set, or its pooler. */
export type Listener = Readonly<{
  /** The id of the service or read replica set. */
  id: string;
  /** The host of the service whose pooler listens; null: its servers do. */
  poolerOf: string | null;
}>;

/** Where services listen. */
export interface Addresses {
  /**
   * Chooses an endpoint for a service, a read replica set or a spare, or for a pooler. It is
   * promised to a client and does not change afterwards. No other endpoint has its host and port.
   *
   * @throws NoPortLeft
   */
  reserve(ports: PortLedger, listener: Listener): Promise<Endpoint>;
  /** Whether a new service would be at the host of this endpoint too. */
  isCurrent(endpoint: Endpoint): boolean;
}

/** @returns the first port that can be used @throws NoPortLeft */
export async function takeUsablePort(
  ports: PortLedger,
  isUsable: (port: number) => Promise<boolean>,
): Promise<number> {
  for (;;) {
    const port = await ports.take();
    if (await isUsable(port)) return port;
  }
}
