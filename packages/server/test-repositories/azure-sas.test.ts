// @module-tag slow
/** A repository in Azure Blob Storage with a shared access signature, as Azurite serves it. */
import { startAzure } from './azure-server.ts';
import { testCloud } from './cloud-scenario.ts';

testCloud((directory) => startAzure(directory, 'sas'));
