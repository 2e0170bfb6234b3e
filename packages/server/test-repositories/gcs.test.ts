// @module-tag slow
/** A repository in Google Cloud Storage, as fake-gcs-server serves it. */
import { testCloud } from './cloud-scenario.ts';
import { startGcs } from './gcs-server.ts';

testCloud(startGcs);
