/** The common part of the tools that change a service. */
import { permissionOfAction, subjectOf, type Action } from '@howdah/contract';
import { body, findService, pathOf, refuseDenied, type Cloud, type Service } from '../cloud.ts';
import { askedAs, askUser, confirmed, WAIT_SECONDS, type Changing, type Outcome } from '../tool.ts';
import { became } from './outcome.ts';

/** The path of a service. */
export const SERVICE = '/projects/{project_id}/services/{service_id}';

/** A change of a service, as the API is asked for it. */
type Asked = {
  params: { path: ReturnType<typeof pathOf> } & ReturnType<typeof askedAs>;
  signal: AbortSignal;
};

/** The arguments of a tool that waits for its change. */
export type Waiting = Changing & { wait_seconds?: number };

/** The answer of the API to a change that it accepts. */
type Accepted = { data?: Service | undefined; response: Response };

/**
 * The service that a tool would take away from its clients. The key is checked before the name,
 * so that no user is asked for what is then refused. For PROD, a client that can asks its user.
 */
export async function findToEnd(
  cloud: Cloud,
  action: Action,
  args: { service: string; confirm: string; dry_run?: boolean },
): Promise<Service> {
  const found = await findService(cloud, args.service);
  const subject = subjectOf(found);
  await refuseDenied(cloud, permissionOfAction(action), subject);
  confirmed(found, args.confirm);
  if (subject.environment === 'PROD' && args.dry_run !== true) askUser(found);
  return found;
}

/** Changes a service, and waits until it has a status, as long as the tool is asked to. */
export async function change(
  cloud: Cloud,
  found: Pick<Service, 'project_id' | 'service_id'>,
  args: Waiting,
  signal: AbortSignal,
  target: 'READY' | 'PAUSED',
  call: (asked: Asked) => Promise<Accepted>,
): Promise<Outcome> {
  const asked = { params: { path: pathOf(found), ...askedAs(args) }, signal };
  const { data, response } = await call(asked);
  const waitSeconds = args.wait_seconds ?? WAIT_SECONDS;
  return became(cloud, body({ data }), response, target, waitSeconds, signal);
}

/** As {@link change}, for calls that answer with a message: the service keeps running or paused. */
export async function adjust(
  cloud: Cloud,
  found: Service,
  args: Waiting,
  signal: AbortSignal,
  call: (asked: Asked) => Promise<{ response: Response }>,
): Promise<Outcome> {
  const { response } = await call({ params: { path: pathOf(found), ...askedAs(args) }, signal });
  const target = found.status === 'PAUSED' ? 'PAUSED' : 'READY';
  const waitSeconds = args.wait_seconds ?? WAIT_SECONDS;
  return became(cloud, found, response, target, waitSeconds, signal);
}
