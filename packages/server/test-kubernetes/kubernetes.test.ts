/** Regions on Kubernetes: real API server and pods, and a double of CloudNativePG's operator. */
import { afterAll, beforeAll } from 'vitest';
import { setUp, tearDown } from './cloud.ts';
import './conformance.ts';
import './faults.ts';
import './pressure.ts';
import './placement.ts';
import './kills.ts';
import './logs.ts';
import './forks.ts';
import './snapshots.ts';
import './verification.ts';
import './archive.ts';
import './poolers.ts';
import './statements.ts';
import './networks.ts';
import './sets.ts';
import './moves.ts';
import './moves-back.ts';
import './journey-suite.ts';
import './gateway.ts';
import './control-plane.ts';

beforeAll(setUp);
afterAll(tearDown);
