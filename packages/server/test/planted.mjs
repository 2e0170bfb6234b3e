// Plants a defect into the control plane that is started with it (NODE_OPTIONS=--import …), to see
// that the tests notice: PLANT names it. It works on the text of the bundle, so that the product
// has no switch for it.
import { editBundle } from './edit-bundle.mjs';

const PLANTS = {
  // The old primary is taken for dead and not ended.
  'no-fence': [['async function fence(paths) {', 'async function fence(paths) { return true;']],
  // Any member is promoted, whatever WAL it lacks.
  'no-check': [
    [
      'if (best === void 0) return { why: "no other member runs and follows" };',
      'if (candidates[0]) return { n: candidates[0].n, detail: "unchecked" };',
    ],
  ],
  // The standby with the least WAL takes over.
  'wrong-standby': [['Number(b.received - a.received)', 'Number(a.received - b.received)']],
  // No death is heard of.
  deaf: [
    ['if (watches.get(id)?.client !== client) return; drop(state, id); changed(id);', ''],
    ['beginSilence(state, id, patience);\n      changed(id);', ''],
  ],
  // A node of a read replica set gets connections however far it is behind.
  'no-lag-limit': [
    ['return bytes <= readLagLimit.bytes && seconds <= readLagLimit.seconds;', 'return true;'],
  ],
  // A node is restarted while the gateway routes to it.
  'no-drain': [
    ['known.withheld.add(n);', ''],
    ['if (sessions === 0 || Date.now() > end) return sessions;', 'return sessions;'],
  ],
  // The gateway routes to a node that accepts writes.
  'writer-serves': [
    ['if (node.takesWrites) return no(', 'if (false) return no('],
    [
      'server !== null && (takesWrites || data === "primary")',
      'server === null && takesWrites && data === "primary"',
    ],
    ['if (node.ahead) return no(', 'if (false) return no('],
    ['if (standby.data === "primary") return { kind: "seed"', 'if (false) return { kind: "seed"'],
  ],
};

const plant = process.env.PLANT;
const edits = PLANTS[plant];
if (edits === undefined)
  throw new Error(`PLANT: found ${plant}; allowed: ${Object.keys(PLANTS).join(', ')}`);
// The bundle breaks lines where the source does, so white space does not count. A replacement is
// taken literally.
editBundle(
  edits.map(([from, to]) => [
    from
      .split(/\s+/)
      .map((word) => word.replace(/[^A-Za-z0-9_]/g, String.raw`\$&`))
      .join(String.raw`\s+`),
    to.replaceAll('$', '$$$$'),
    1,
  ]),
);
