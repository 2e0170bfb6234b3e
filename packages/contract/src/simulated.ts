/** The region whose services are simulated, and the note beside their endpoints. */

/** The code of the region whose services are simulated: nothing listens on their endpoints. */
export const SIMULATED_REGION = 'simulated';

/** A note for each place that shows how to connect to a service; null: PostgreSQL answers there. */
export function simulationNote({ region_code }: { readonly region_code: string }): string | null {
  return region_code === SIMULATED_REGION
    ? 'This service is simulated: no PostgreSQL answers at its endpoint.'
    : null;
}
