/** Users of the operating system, as the files and processes of services have them. */

export type Owner = { name: string; uid: number; gid: number };

/** Which users may connect with which of our roles. */
export type ConfigUsers = {
  /** The control plane's own user. */
  control: string;
  /** The user that the server itself runs as; null: the control plane's. */
  owner: Owner | null;
  /** The user of gateways, if it is not the user of the service. */
  gateway: Owner | null;
};
