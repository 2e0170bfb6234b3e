/** A session in the metadata database beside those of the control plane. */
import { Client, type ClientConfig } from 'pg';

/**
 * Works in a session of its own, and ends it.
 *
 * @param name of the command, which `pg_stat_activity` shows
 * @throws Error of the connection, or of the work
 */
export async function inCommandSession<T>(
  connection: ClientConfig,
  name: string,
  work: (client: Client) => Promise<T>,
): Promise<T> {
  const client = new Client({ ...connection, application_name: name });
  client.on('error', () => undefined); // the running statement fails with it
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
