/** The configuration files of a server of this machine. */
import { type ConfigUsers, accountFiles, SERVICE_USER } from '../host/users.ts';
import { serverConf, type ServerConf, type ServerInput } from '../../postgres/server-conf.ts';

export type ConfigFiles = ServerConf & {
  /**
   * The accounts that the processes of a service with a user of its own see instead of the
   * machine's.
   */
  passwd?: string;
  group?: string;
};

/** Every configuration file of a server. */
export function configFiles(input: ServerInput, users: ConfigUsers): ConfigFiles {
  return {
    ...serverConf(input, users),
    ...(users.owner?.name === SERVICE_USER ? accountFiles(users.owner, users.gateway) : {}),
  };
}
