/** Performs the step that `decideSet` has chosen for a read replica set. */
import { join } from 'node:path';
import { removeEntry } from '../../host/service-files.ts';
import { nodeName } from '../../postgres/replication.ts';
import { fence } from '../../postgres/server.ts';
import { applyToStandby, writeReplicationFor } from '../apply-standby.ts';
import type { Topology } from '../context.ts';
import type { SetStep } from '../decide-set.ts';
import { isEnding } from '../driver.ts';
import type { Found } from '../executor.ts';
import { allowNetworks, startGateway, stopGateway } from '../gateways.ts';
import { createSlots, seedStandby } from '../standbys.ts';
import { balance, withhold } from './balance.ts';
import { changeOwnerOfSet, makeSet, restartNode } from './nodes.ts';
import type { SetObserved } from './observe.ts';
import { applyToPoolerOfSet } from './pooler.ts';
import type { SetState } from './set-state.ts';
import { primaryOrWait } from './slots.ts';

type StepOf<Kind extends SetStep['kind']> = Extract<SetStep, { kind: Kind }>;
type StepOfNode = StepOf<'fence' | 'seed' | 'restart' | 'server'>;

/** @returns a line for the user @throws NotYet when the step has to wait */
export async function applyToSet(
  topology: Topology,
  known: SetState,
  step: SetStep,
  observed: SetObserved,
): Promise<string> {
  const { machine, monitor } = topology;
  const { spec, set } = known;
  const { id } = spec;
  switch (step.kind) {
    case 'make':
      return makeSet(machine, id, set.parent);
    case 'own':
      return changeOwnerOfSet(topology, known, observed.found.values());
    case 'openGateway':
      return startGateway(topology, spec);
    case 'closeGateway':
      await stopGateway(topology, id);
      return step.why;
    case 'allowNetworks':
      return allowNetworks(topology, spec);
    case 'balance':
      return balance(topology, known);
    case 'setSlots': {
      const names = set.nodes.map(({ n }) => nodeName(id, n));
      await createSlots(monitor, primaryOrWait(observed.primary).key, names);
      return names.join(', ');
    }
    case 'pooler':
      return applyToPoolerOfSet(topology, known, step.step, observed);
    case 'fence':
    case 'seed':
    case 'restart':
    case 'server':
      known.asked.add(step.n);
      return applyToNode(topology, known, step, observed);
  }
}

async function applyToNode(
  topology: Topology,
  known: SetState,
  step: StepOfNode,
  { found, conf, primary }: SetObserved,
): Promise<string> {
  const { n } = step;
  const node = found.get(n);
  if (node === undefined) throw new Error(`node ${n} was not observed`);
  const settings = conf.get(n) ?? '';
  switch (step.kind) {
    case 'fence':
      topology.monitor.forget(node.key);
      if (!(await fence(node.paths))) throw new Error(`node ${n} does not end`);
      // It went a way of its own: whatever its files say, it cannot follow any more.
      await removeEntry(join(node.paths.data, 'standby.signal'));
      return 'it is recreated';
    case 'seed':
      await withhold(topology, known, n);
      try {
        return await seedStandby(topology.standbys, node, {
          primary: primaryOrWait(primary),
          slot: nodeName(known.spec.id, n),
          conf: settings,
          why: step.why,
        });
      } finally {
        known.withheld.delete(n);
      }
    case 'restart':
      return restartNode(topology, known, n, node, settings);
    case 'server':
      return applyToServer(topology, known, step, node, settings);
  }
}

async function applyToServer(
  topology: Topology,
  known: SetState,
  { n, step }: StepOf<'server'>,
  found: Found,
  conf: string,
): Promise<string> {
  if (isEnding(step)) return '';
  await writeReplicationFor(topology, step, found, conf);
  // A node that starts accepts connections before it can answer; the connections of a dead one may
  // outlive it for a moment.
  if (step.kind === 'stop' || step.kind === 'start') await withhold(topology, known, n);
  try {
    return await applyToStandby(topology, known.spec, step, found);
  } finally {
    known.withheld.delete(n);
  }
}
