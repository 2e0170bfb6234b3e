/** Defects of services that sleep, and of what wakes them. */
import type { Plant } from './plant.ts';

const SERVER = 'packages/server/src';
const SLEEP_TEST = 'packages/server/test/sleep.test.ts';

export const SLEEP_PLANTS: readonly Plant[] = [
  {
    name: 'cancel-wakes',
    breaks: ['sleep'],
    effect: 'a request to cancel wakes a service that sleeps',
    edits: [
      {
        file: `${SERVER}/engine/local/relays/relay.ts`,
        from:
          "      if (relay.state === 'awake') await connectTo(relay, client, begun.bytes);\n" +
          '      else client.destroy();\n      return;\n',
        to: '      return serveSession(relay, client, begun.bytes);\n',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: SLEEP_TEST, name: 'do not wake it' }] },
  },
  {
    name: 'sleeps-with-a-slot',
    breaks: ['sleep'],
    effect: 'a service falls asleep although a replication slot needs its server',
    edits: [
      {
        file: `${SERVER}/engine/local/relays/sleep.ts`,
        from:
          '      if (server === null || (await holdersOf(local, id)).length > 0) ' +
          'return false;\n',
        to: '      if (server === null) return false;\n',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: SLEEP_TEST, name: 'a replication slot' }] },
  },
  {
    name: 'relay-ignores-networks',
    breaks: ['allow lists', 'sleep'],
    effect: 'clients that an allow list keeps out reach, and wake, a service that may sleep',
    edits: [
      {
        file: `${SERVER}/engine/local/relays/relay.ts`,
        from: '  if (!mayEnter(relay, client)) return void client.destroy();\n',
        to: '',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: SLEEP_TEST, name: 'other networks' }] },
  },
  {
    name: 'sleeper-repaired',
    breaks: ['sleep'],
    effect: 'a start of the control plane wakes all services that sleep',
    edits: [
      {
        file: `${SERVER}/engine/local/index.ts`,
        from: "  if (relay?.state === 'asleep' || relay?.state === 'waking') return true;\n",
        to: '',
      },
    ],
    caughtBy: { gate: 'A', tests: [{ file: SLEEP_TEST, name: 'without a control plane' }] },
  },
];
