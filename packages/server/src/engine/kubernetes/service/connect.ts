/** The step `connect`: PostgreSQL answers at the endpoint of a service. */
import { EngineUnavailable } from '../../engine.ts';
import type { ServiceSpec } from '../../spec.ts';
import type { Region } from '../region.ts';
import { askChallenge, saltOf } from './challenge.ts';

/**
 * Has PostgreSQL answer at the endpoint, of a new service with its first password: before the
 * operator sets that, a fork lets in with the password of its parent.
 *
 * @throws EngineUnavailable with the reason
 */
export async function connect(
  { authority }: Region,
  { endpoint, firstVerifier, provisioned, allowedNetworks }: ServiceSpec,
  isProvisioned: boolean,
): Promise<void> {
  const challenge = await askChallenge(endpoint, authority.certificatePem).catch(
    (error: unknown) => {
      if (allowedNetworks === null || !(error instanceof EngineUnavailable)) throw error;
      throw new EngineUnavailable(`${error.message}${ONE_NODE}`, { cause: error });
    },
  );
  if (challenge.kind === 'disallowed' && allowedNetworks === null)
    throw new EngineUnavailable('PostgreSQL has not loaded yet that all networks are allowed');
  if (provisioned || isProvisioned || firstVerifier === null || challenge.kind === 'disallowed')
    return;
  if (challenge.salt !== saltOf(firstVerifier))
    throw new EngineUnavailable('CloudNativePG has not set its password yet');
}

const ONE_NODE =
  '; a service with allowed networks answers at the node of its primary only, and its pooler at ' +
  'that of its pod, so the host of the region must lead to those';
