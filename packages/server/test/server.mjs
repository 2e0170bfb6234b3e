/**
 * The server of the control plane of tests: that of users, with the tuning of the test; see
 * `up.mjs`.
 */
import * as server from '../dist/main.js?users';

export * from '../dist/main.js?users';

/** A part of the tuning: what it does not name is as users have it. */
const { rounds = {}, ...more } = JSON.parse(process.env['TEST_TUNING'] ?? '{}');
const tuning = { ...server.TUNING, ...more, rounds: { ...server.TUNING.rounds, ...rounds } };

/** @type {typeof server.startControlPlane} */
export async function startControlPlane(config, log, progress) {
  const plane = await server.startControlPlane(config, log, progress, tuning);
  process.on('message', ({ id, round }) => {
    plane.runRound(round).then(
      () => process.send?.({ id, error: null }),
      (error) => process.send?.({ id, error: error.message }),
    );
  });
  // The channel keeps no process alive that has ended otherwise.
  process.channel?.unref();
  return plane;
}
