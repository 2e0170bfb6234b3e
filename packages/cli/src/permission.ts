/**
 * The role rules of the contract, applied before a question is asked: nobody confirms what the API
 * then refuses.
 */
import {
  ACCESS,
  PERMISSIONS,
  refusalOfCall,
  type CallName,
  type Permission,
} from '@howdah/contract/permissions';
import type { Environment } from '@howdah/contract/types';
import type { Destroying } from './command.ts';
import { asks, confirm } from './confirm.ts';
import { answered, type Connection } from './connection.ts';
import { Failure } from './exit.ts';

/**
 * Refuses what the key may not do. Where nothing is asked, the API refuses it itself.
 *
 * @param of what the call would take away from its clients
 * @throws Failure refused, with the words of the API
 */
export async function refuseBeforeAsking(
  { client }: Connection,
  options: Destroying,
  permission: Permission,
  of: { environment?: Environment; createdBy?: string | undefined } = {},
): Promise<void> {
  if (!asks(options)) return;
  const { api_key: key } = await answered(client.GET('/auth/info'));
  const refused = refusalOfCall(key, permission, of);
  if (refused !== null) throw new Failure(refused, 'refused');
}

/**
 * Asks before a call that deletes something, unless the key may not make it.
 *
 * @throws Failure refused, with the words of the API or when the answer is not yes
 */
export async function confirmCall(
  connection: Connection,
  call: CallName,
  question: string,
  options: Destroying,
): Promise<void> {
  await refuseBeforeAsking(connection, options, PERMISSIONS[ACCESS[call]]);
  await confirm(question, options);
}
