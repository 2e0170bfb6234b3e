/** The outcomes of tools that work on a service. */
import { connectionString, describe, settle, type Cloud, type Service } from '../cloud.ts';
import type { Outcome } from '../tool.ts';

export function about(found: Service): Outcome {
  const data = describe(found);
  return {
    summary: `${data.name} (${data.service_id}) is ${data.status} at ${data.endpoint}.`,
    data,
  };
}

/** A service after a change and the wait for it. */
export async function became(
  cloud: Cloud,
  accepted: Service,
  response: Response,
  target: 'READY' | 'PAUSED',
  waitSeconds: number,
  signal: AbortSignal,
): Promise<Outcome> {
  const { service: seen, done } = await settle(cloud, accepted, target, waitSeconds, signal);
  const operation_id = response.headers.get('Operation-Id');
  const outcome = about(seen ?? accepted);
  return {
    summary: done ? outcome.summary : `${outcome.summary} Not ${target} yet: wait_for_operation.`,
    data: { ...outcome.data, operation_id },
  };
}

/** A new service with its password, which is in no other answer. */
export async function created(
  cloud: Cloud,
  accepted: Service,
  response: Response,
  waitSeconds: number,
  signal: AbortSignal,
  how: string,
): Promise<Outcome> {
  const password = accepted.initial_password ?? '';
  if (accepted.forked_from !== undefined) cloud.passwords.keep(accepted.service_id, password);
  const secret = { password, connection_string: connectionString(accepted, password) };
  // The password is part of the outcome also after a failed wait.
  const { data } = await became(cloud, accepted, response, 'READY', waitSeconds, signal).catch(() =>
    about(accepted),
  );
  return {
    summary:
      `${accepted.name} (${accepted.service_id}) was ${how} and is ${String(data['status'])}. ` +
      'Keep the password: it is shown once.',
    data: { ...data, ...secret },
  };
}
