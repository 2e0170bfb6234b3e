/**
 * The control plane, the databases and the metadata database killed in the middle of every
 * operation of a family: it ends as it does uncrashed. In every test run at a few of the effects of
 * each (crash-FAMILY.test.ts); `npm run soak:crash` goes on for as long as it is let.
 */
import { expect, test } from 'vitest';
import { crashFamilies } from './crash-scenes.ts';
import { explore, installCrashing, type Playable } from './crash.ts';
import { hitsOf, randomFrom, sample, type Hit, type Point, type Fault } from './crash-points.ts';
import { probeNetworks } from './probe.ts';

// The same points each time, so that a run says of the change before it; the soak goes elsewhere.
const seed = Number(process.env['SEED'] ?? 1);
const HITS_PER_SCENE = 3;

const { method } = await probeNetworks();
const RULES_WRITTEN = after(replaced('services/it/config/pg_hba.conf'), 'kill');

/**
 * Where something once went wrong, by the names of scenes; played besides the sample. An effect
 * that no longer comes about fails the test.
 */
const ONCE_WRONG: Readonly<Record<string, readonly Hit[]>> = {
  // The metadata database away for a moment made a good backup a bad one.
  'verify backup': [after(replaced('scratch/it/data/postgresql.auto.conf'), { server: 'store' })],
  // The files had new rules, and the server never read them. Where a VPC is a network, it has no
  // such rules.
  ...(method === 'address' ? { attach: [RULES_WRITTEN], detach: [RULES_WRITTEN] } : {}),
};

/** The effect by which a file is replaced: it is written under another name first. */
function replaced(path: string): string {
  return `rename ${path}.new → ${path}`;
}

function after(effect: string, fault: Fault): Hit {
  return { effect, nth: 1, when: 'after', delayMs: 0, fault };
}

function onceWrongIn({ name }: Playable, points: readonly Point[]): readonly Hit[] {
  const hits = ONCE_WRONG[name] ?? [];
  const gone = hits.filter(({ effect }) => !points.some((point) => point.effect === effect));
  if (gone.length > 0)
    throw new Error(`${name} has no ${gone.map(({ effect }) => effect).join(', ')} any more`);
  return hits;
}

/**
 * Declares the test of one family; each stands in a file of its own, so that they run side by side.
 */
export async function testCrashesIn(name: string): Promise<void> {
  const family = (await crashFamilies()).find((one) => one.name === name);
  if (family === undefined) throw new Error(`no family of scenes is called ${name}`);
  const { settings, playable, make } = family;
  test.runIf(playable)(
    `${name} end as they do uncrashed, wherever they are crashed (SEED=${seed})`,
    async () => {
      const random = randomFrom(seed);
      const testbed = await installCrashing(
        typeof settings === 'function' ? await settings() : settings,
      );
      const failures: string[] = [];
      const unseen: string[] = [];
      const injected: Record<'server' | 'other', boolean[]> = { server: [], other: [] };
      try {
        for (const scene of await make(testbed)) {
          const found = await explore(
            testbed,
            scene,
            (points) => {
              if (!points.some(({ effect }) => /^commit .*\binsert /.test(effect)))
                unseen.push(scene.name);
              return [
                ...onceWrongIn(scene, points),
                ...sample(hitsOf(points, scene), HITS_PER_SCENE, random),
              ];
            },
            (line) => void process.stdout.write(`${line}\n`),
            ({ fault }, came) =>
              injected[typeof fault === 'object' ? 'server' : 'other'].push(came),
          );
          failures.push(...found.failures);
        }
      } finally {
        failures.push(...(await testbed.destroy()));
      }
      expect(failures).toEqual([]);
      // Whatever is asked for is written down: a scene without that is one whose commits
      // crash-at.mjs does not see.
      expect(unseen).toEqual([]);
      // Some points come and go with what else is done at the time, and a server may be down when
      // it is to be killed. With none, nothing was tested.
      expect(injected.other).toContain(true);
      expect(injected.server).toContain(true);
    },
    1_200_000,
  );
}
