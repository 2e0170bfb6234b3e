/**
 * The server's source for tests, beside test/probe.ts: the API and the engines as a whole, the
 * parts of the Kubernetes engine, and the promises of the engine interface.
 */

// api
export { createApp } from '../src/api/app.ts';
export type { App } from '../src/api/context.ts';
export { openApiTls } from '../src/api/tls.ts';

// engine/conformance
export { createMemoryLogs, type MemoryLogs } from '../src/engine/conformance/memory-records.ts';
export { createMemoryRecords } from '../src/engine/conformance/memory-records.ts';
export { PROMISES } from '../src/engine/conformance/promises.ts';
export { STATEMENT_PROMISES, STUBBORN } from '../src/engine/conformance/statement-promises.ts';
export {
  currentSpec,
  removeAll,
  replicated,
  runStatement,
  settle,
  type Subject,
} from '../src/engine/conformance/subject.ts';

// engine/kubernetes
export { tryWrite } from '../src/engine/kubernetes/region/answers.ts';
export { createKube, FIELD_MANAGER } from '../src/engine/kubernetes/api/client.ts';
export { KubeError } from '../src/engine/kubernetes/api/errors.ts';
export { type Connection, readKubeconfig } from '../src/engine/kubernetes/api/kubeconfig.ts';
export { capabilitiesOf } from '../src/engine/kubernetes/capabilities.ts';
export {
  type FakeKubernetes,
  startFakeKubernetes,
} from '../src/engine/kubernetes/fake-kubernetes.testing.ts';
export { createKubernetesEngine } from '../src/engine/kubernetes/index.ts';
export { unpack } from '../src/engine/kubernetes/logs/page.ts';
export { DESIRED } from '../src/engine/kubernetes/cluster/manifest.ts';
export {
  clusterName,
  controlSecret,
  namespaceOf,
  originBackup,
  podIn,
  podOf,
  readerSecret,
  setName,
} from '../src/engine/kubernetes/names.ts';
export { storeSecret } from '../src/engine/kubernetes/backup/manifests.ts';
export { POOLER_TEMPLATE_SQL } from '../src/engine/kubernetes/cluster/manifest.ts';
export { listOf, withStore } from '../src/engine/kubernetes/backup/s3.testing.ts';
export { STEPS, switchOverTo } from '../src/engine/kubernetes/cluster/steps.ts';

// engine/local
export { certificateHosts, createLocalEngine } from '../src/engine/local/index.ts';
export { createMoveActions } from '../src/engine/local/moves.ts';

// engine/model
export { createModelEngine } from '../src/engine/model/index.ts';
