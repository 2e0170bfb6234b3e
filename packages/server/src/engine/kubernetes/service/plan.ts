/** The steps of a change if nothing prevents them: the answer to a dry run. */
import { isDeepStrictEqual } from 'node:util';
import type { Lifecycle } from '../../engine.ts';
import { STEPS } from './steps.ts';

export const planOf: Lifecycle['plan'] = (kind, spec, running, sizeBefore) => {
  const begin = [STEPS.start, STEPS.connect];
  switch (kind) {
    case 'create':
      return [STEPS.create, ...begin];
    case 'start':
    case 'repair':
      return running ? [] : begin;
    case 'restore':
      return spec.power === 'running' ? begin : [];
    case 'stop':
    case 'delete':
      return running ? [STEPS.stop] : [];
    case 'restart':
      return running ? [STEPS.restart, STEPS.connect] : [];
    case 'resize':
      // A paused service has its new size once it starts.
      if (!running) return [];
      return isDeepStrictEqual(spec.size, sizeBefore)
        ? [STEPS.growVolume, STEPS.connect]
        : [STEPS.restart, STEPS.connect];
    // Changes without a step here, and those that the region refuses.
    case 'updatePassword':
    case 'setEnvironment':
    case 'rename':
    case 'fork':
    case 'recover':
    case 'enablePooler':
    case 'disablePooler':
    case 'setHA':
    case 'switchover':
    case 'drill':
    case 'failover':
    case 'attachToAllowList':
    case 'detachFromAllowList':
    case 'attachToVPC':
    case 'detachFromVPC':
    case 'verifyBackup':
    case 'runBackup':
    case 'enableExtension':
    case 'disableExtension':
    case 'upgrade':
    case 'tryUpgrade':
    case 'undoUpgrade':
      return [];
  }
};
