/** The names of steps as users read them: those of the engine that runs PostgreSQL. */
import { EXTENSION_STEPS } from '../engine.ts';

export const STEP = {
  clone: 'clone template',
  fork: 'clone parent',
  writeFiles: 'write configuration',
  start: 'start PostgreSQL',
  stop: 'stop PostgreSQL',
  reload: 'reload configuration',
  createExtension: EXTENSION_STEPS[0],
  dropExtension: EXTENSION_STEPS[1],
  setPassword: 'set password',
  startPooler: 'start connection pooler',
  stopPooler: 'stop connection pooler',
  startGateway: 'start gateway',
  stopGateway: 'stop gateway',
  gatewayBefore: 'start gateway in front of primary',
  move: 'move primary and gateway',
  allowNetworks: 'configure allowed networks',
  restartPrimary: 'restart primary',
  recordedPrimary: 'promote',
  failOver: 'fail over',
  routeToNodes: 'route gateway to nodes',
  makeDirectory: 'create directory',
  removeData: 'remove data',
} as const;

/** A step at one server of a service with replicas. */
export const onServer = (name: string, n: number): string => `${name} (member ${n})`;

/** A step at one node of a read replica set. */
export const onNode = (name: string, n: number): string => `${name} (node ${n})`;

export const seedName = (n: number): string => onServer('clone primary', n);
export const seedNodeName = (n: number): string => onNode('clone primary', n);
export const startWithGatewayName = (n: number): string => `${onServer(STEP.start, n)} and gateway`;
export const stopSecondWriterName = (n: number): string => onServer('stop second writer', n);
export const switchOverName = (to: number): string => `switch over to member ${to}`;
export const retireName = (n: number): string => `remove member ${n}`;
export const restartNodeName = (n: number): string => `restart node ${n}`;

export const VERIFY_STEPS = [
  'restore snapshot',
  'replay WAL',
  'compare catalogs',
  'check tables and indexes',
  'check page checksums',
] as const;
