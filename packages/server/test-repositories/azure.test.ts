/** A repository in Azure Blob Storage, as Azurite serves it. */
import { startAzure } from './azure-server.ts';
import { testCloud } from './cloud-scenario.ts';

testCloud(startAzure, { isSilenceTested: true });
