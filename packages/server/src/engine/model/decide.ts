/**
 * The next step of a model service: a pure function of the desired state and of what exists. A dry
 * run follows it to the end.
 */
import { decideHa } from './decide-ha.ts';
import { decidePoolerStop, decideServer } from './decide-server.ts';
import { decideSet } from './decide-set.ts';
import type { NextStep, Situation } from './next-step.ts';
import { primaryOf } from './state.ts';
import { decideNodes, decideUpgrade } from './upgrade.ts';

export function decide(situation: Situation): NextStep {
  const { spec } = situation;
  const stop = decidePoolerStop(situation);
  if (stop !== null) return stop;
  const upgrade = decideUpgrade(situation) ?? decideNodes(situation);
  if (upgrade !== null) return upgrade;
  const why = whyNotStartable(situation);
  if (why !== null && spec.power === 'running') return { kind: 'refuse', why };
  if (spec.set !== null) return decideSet(situation, spec.set.parent);
  return spec.ha === null ? decideServer(situation) : decideHa(situation, spec.ha);
}

/**
 * Data of one major version of PostgreSQL is not started with another, and lost data is not
 * replaced by an empty database.
 */
function whyNotStartable({ spec, service }: Situation): string | null {
  if (spec.set === null && spec.recovery === null && primaryOf(service) === undefined) {
    if (spec.provisioned || service.provisioned)
      return 'its data is missing: mount its disk, or bring its data back';
  }
  if (spec.upgrade !== null) return null;
  return spec.major === null || service.major === null || spec.major === service.major
    ? null
    : `its data is of PostgreSQL ${service.major}, and its record says ${spec.major}`;
}
