/** The roles of ours in every server of a service, and the database that we work in. */

/**
 * The superuser of every server. Only the control plane's own user can connect with it, over the
 * Unix socket.
 */
export const CONTROL_ROLE = 'howdah';

/**
 * The role by which a standby follows its primary and reads the failover slots there; see
 * slots-role.ts. It comes in over the Unix socket only.
 */
export const SLOTS_ROLE = 'howdah_slots';

/**
 * The database that tools connect to when they create and drop others. Tenants can create nothing
 * in it, so that only its shared catalogs show objects of theirs.
 */
export const MAINTENANCE_DATABASE = 'postgres';
/**
 * The role that a drill writes with, through the gateway and into the maintenance database; see
 * drill.ts.
 */
export const PROBE_ROLE = '_howdah_probe';
