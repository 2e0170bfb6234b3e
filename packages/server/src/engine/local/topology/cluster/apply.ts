/** Performs the step that `decideHa` has chosen for a cluster. */
import type { ShowProgress } from '../../../engine.ts';
import { memberName } from '../../postgres/replication.ts';
import { fence } from '../../postgres/server.ts';
import { applyStep } from '../apply.ts';
import { applyToStandby, writeReplicationFor } from '../apply-standby.ts';
import type { HaStep } from '../decide-ha.ts';
import { sweepRehearsal } from '../drill.ts';
import { isEnding } from '../driver.ts';
import { allowNetworks, routeGateway, startGateway, stopGateway } from '../gateways.ts';
import { seedStandby, writeReplication } from '../standbys.ts';
import { runDrill } from './drill.ts';
import { acceptWrites, failOver } from './failover.ts';
import type { ClusterObserved } from './observe.ts';
import { toPrimary } from './primary.ts';
import { retire, setSlots } from './replicas.ts';
import { changeOwner, move, moveToGateway, restart } from './restart.ts';
import { foundAt, keyOf, pathsOf, portOf, type ClusterRound } from './round.ts';
import { switchOver } from './switchover.ts';

type StepOf<Kind extends HaStep['kind']> = Extract<HaStep, { kind: Kind }>;

/** @returns a line for the user @throws NotYet when the step has to wait */
export async function applyToCluster(
  round: ClusterRound,
  step: HaStep,
  observed: ClusterObserved,
  show: ShowProgress,
): Promise<string> {
  const { topology, spec, ha } = round;
  switch (step.kind) {
    case 'server':
      return applyToServer(round, step, observed, show);
    case 'startWithGateway':
      return startWithGateway(round, step.n, observed);
    case 'promote':
    case 'switchOver':
    case 'restart':
    case 'moveToGateway':
    case 'own':
    case 'move':
      return toPrimary(round, () => applyToPrimary(round, step, observed));
    case 'fence':
    case 'seed':
    case 'setSlots':
    case 'retire':
      return applyToStandbys(round, step, observed);
    case 'failOver': {
      const choice = await failOver(round);
      return 'n' in choice ? `member ${choice.n} is the primary: ${choice.detail}` : choice.why;
    }
    case 'allowNetworks':
      return allowNetworks(topology, spec);
    case 'openGateway':
      return startGateway(topology, spec);
    case 'routeGateway':
      await routeGateway(topology, spec.id, portOf(ha, ha.primary));
      return `member ${ha.primary}`;
    case 'closeGateway':
      await stopGateway(topology, spec.id);
      return step.why;
    case 'sweepDrill':
      await sweepRehearsal({ paths: pathsOf(round, ha.primary), port: portOf(ha, ha.primary) });
      return 'it was interrupted';
    case 'drill':
      return runDrill(round);
  }
}

/** Steps that start, stop or promote the primary; the caller has its turn. */
async function applyToPrimary(
  round: ClusterRound,
  step: StepOf<'promote' | 'switchOver' | 'restart' | 'moveToGateway' | 'own' | 'move'>,
  { found, conf }: ClusterObserved,
): Promise<string> {
  const { primary } = round.ha;
  const at = () => ({ found: foundAt(found, primary), conf: conf.get(primary) ?? '' });
  switch (step.kind) {
    case 'promote':
      await acceptWrites(round, primary);
      return `member ${primary}`;
    case 'switchOver':
      return switchOver(round, step.to, step.why);
    case 'restart':
      return restart(round, at().found, step.why);
    case 'moveToGateway':
      return moveToGateway(round, at());
    case 'own':
      return changeOwner(round, found, at().conf);
    case 'move':
      return move(round, at(), step.why);
  }
}

/** Steps that create and remove standbys. */
async function applyToStandbys(
  round: ClusterRound,
  step: StepOf<'fence' | 'seed' | 'setSlots' | 'retire'>,
  { found, conf }: ClusterObserved,
): Promise<string> {
  const { topology, spec, ha } = round;
  switch (step.kind) {
    case 'fence':
      topology.monitor.forget(keyOf(round, step.n));
      if (!(await fence(foundAt(found, step.n).paths)))
        throw new Error(`member ${step.n} does not end`);
      return 'it follows the primary from now on';
    case 'seed':
      return seedStandby(topology.standbys, foundAt(found, step.n), {
        primary: { key: keyOf(round, ha.primary), paths: foundAt(found, ha.primary).paths },
        slot: memberName(step.n),
        conf: conf.get(step.n) ?? '',
        why: step.why,
      });
    case 'setSlots':
      return setSlots(round);
    case 'retire':
      await retire(topology, spec.id, step.n, foundAt(found, step.n));
      return 'as requested';
  }
}

/** Starts the primary and its gateway side by side: clients wait, whichever is ready first. */
async function startWithGateway(
  round: ClusterRound,
  n: number,
  observed: ClusterObserved,
): Promise<string> {
  const both = [
    applyToServer(round, { kind: 'server', n, step: { kind: 'start' } }, observed),
    startGateway(round.topology, round.spec),
  ];
  // Neither may continue once the caller knows that the other has failed.
  await Promise.allSettled(both);
  return (await Promise.all(both)).join('; the gateway ');
}

async function applyToServer(
  round: ClusterRound,
  { n, step }: StepOf<'server'>,
  observed: ClusterObserved,
  show?: ShowProgress,
): Promise<string> {
  if (isEnding(step)) return '';
  const { topology, spec, ha } = round;
  const { executor } = topology;
  const found = foundAt(observed.found, n);
  const conf = observed.conf.get(n) ?? '';
  await writeReplicationFor(topology, step, found, conf);
  if (n !== ha.primary) return applyToStandby(topology, spec, step, found);
  if (step.kind === 'convert' || step.kind === 'exchange')
    // It waits for its turn: no failover begins before all members are stopped.
    return toPrimary(round, () => applyStep(executor, spec, step, found));
  if (step.kind !== 'start' && step.kind !== 'stop') {
    const did = await applyStep(executor, spec, step, found, show);
    // A new instance has a directory for the file only now.
    if (step.kind === 'clone' || step.kind === 'fork' || step.kind === 'recover')
      await writeReplication(executor, found, conf);
    return did;
  }
  const { successor } = observed.seen;
  const why =
    successor !== null && 'why' in successor ? `; nobody takes over: ${successor.why}` : '';
  return toPrimary(round, async () => `${await applyStep(executor, spec, step, found)}${why}`);
}
