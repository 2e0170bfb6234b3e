/**
 * The cluster itself: volumes, NodePorts, names of services, an API server that comes and goes, and
 * a second cluster beside it that leaves nothing behind.
 */
import { execFile, spawn } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readRig, type Rig } from './rig.ts';

const RUN = fileURLToPath(new URL('../run', import.meta.url));
const NAMESPACE = 'rig-test';
const rig = readRig();
const output = async (file: string, ...args: string[]): Promise<string> =>
  (await promisify(execFile)(file, args)).stdout;
const kubectl = async (...args: string[]): Promise<string> =>
  output(rig.control, 'in', 'kubectl', `--namespace=${NAMESPACE}`, ...args);

async function apply(...objects: object[]): Promise<void> {
  for (const object of objects) {
    const applying = promisify(execFile)(rig.control, ['in', 'kubectl', 'create', '-f', '-']);
    applying.child.stdin?.end(JSON.stringify(object));
    await applying;
  }
}

const START = `
  initdb --pgdata /data/pgdata --auth-host trust --no-sync
  echo 'host all all all trust' >>/data/pgdata/pg_hba.conf
  exec postgres -D /data/pgdata -c listen_addresses='*' -c unix_socket_directories=/tmp`;

const metadata = { name: 'db', namespace: NAMESPACE, labels: { app: 'db' } };
const claim = {
  apiVersion: 'v1',
  kind: 'PersistentVolumeClaim',
  metadata,
  spec: {
    accessModes: ['ReadWriteOnce'],
    storageClassName: rig.storageClass,
    resources: { requests: { storage: '200Mi' } },
  },
};
const pod = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata,
  spec: {
    securityContext: { runAsUser: 26, runAsGroup: 26, runAsNonRoot: true, fsGroup: 26 },
    terminationGracePeriodSeconds: 0,
    containers: [
      {
        name: 'postgres',
        image: rig.postgresImage,
        command: ['sh', '-ec', START],
        resources: { limits: { memory: '256Mi' } },
        volumeMounts: [{ name: 'data', mountPath: '/data' }],
      },
    ],
    volumes: [{ name: 'data', persistentVolumeClaim: { claimName: 'db' } }],
  },
};
const service = {
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { ...metadata, name: 'db-service' },
  spec: { type: 'NodePort', selector: { app: 'db' }, ports: [{ port: 5432, nodePort: 30999 }] },
};

beforeAll(async () => {
  await kubectl('create', 'namespace', NAMESPACE);
  await kubectl('wait', '--for=create', 'serviceaccount/default', '--timeout=300s');
  await apply(claim, pod, service);
});
afterAll(async () => {
  await kubectl('delete', 'namespace', NAMESPACE);
});

const write = async (megabytes: number): Promise<string> =>
  kubectl(
    'exec',
    'db',
    '--',
    'sh',
    '-ec',
    `head -c ${megabytes}M /dev/urandom >/data/file; sync /data/file; stat -c %s /data/file`,
  );

describe('the cluster', () => {
  test('the node runs the version of Kubernetes that go.mod names', async () => {
    const modules = readFileSync(new URL('../go.mod', import.meta.url), 'utf8');
    const [, version = ''] = /k8s\.io\/kubernetes (v\S+)/.exec(modules) ?? [];
    expect(version).not.toBe('');
    expect(await kubectl('get', 'node', 'node')).toMatch(new RegExp(`Ready .*${version}`));
  });

  test('PostgreSQL in a pod answers at a NodePort', async () => {
    const sql = postgres({ host: rig.nodeAddress, port: 30_999, user: 'postgres', max: 1 });
    await expect
      .poll(async () => (await sql`select current_setting('server_version')`)[0])
      .toMatchObject({ current_setting: expect.stringMatching(/^17\./) });
    await sql.end();
  });

  test('the name of a service resolves in a pod', async () => {
    const address = await kubectl(
      'get',
      'service',
      'db-service',
      '-o',
      'jsonpath={.spec.clusterIP}',
    );
    expect(await kubectl('exec', 'db', '--', 'getent', 'ahostsv4', 'db-service')).toContain(
      address,
    );
  });

  test('a volume is full at its size, and takes more once its claim is expanded', async () => {
    await kubectl('wait', 'pod/db', '--for=condition=Ready', '--timeout=300s');
    await expect(write(300)).rejects.toThrow('Disk quota exceeded');
    await kubectl('exec', 'db', '--', 'rm', '/data/file');
    const spec = { spec: { resources: { requests: { storage: '600Mi' } } } };
    await kubectl('patch', 'pvc', 'db', '--patch', JSON.stringify(spec));
    await expect
      .poll(() => kubectl('get', 'pvc', 'db', '-o', 'jsonpath={.status.capacity.storage}'))
      .toBe('600Mi');
    expect(await write(300)).toBe(`${300 * 1024 * 1024}\n`);
  });

  test('a volume that is made of a snapshot has the data of then', async () => {
    const script = 'rm -f /data/file; echo before >/data/small';
    await kubectl('exec', 'db', '--', 'sh', '-ec', script);
    const named = (name: string) => ({ name, namespace: NAMESPACE });
    await apply({
      apiVersion: 'snapshot.storage.k8s.io/v1',
      kind: 'VolumeSnapshot',
      metadata: named('then'),
      spec: {
        source: { persistentVolumeClaimName: 'db' },
        volumeSnapshotClassName: rig.storageClass,
      },
    });
    const ready = '--for=jsonpath={.status.readyToUse}=true';
    await kubectl('wait', 'volumesnapshot/then', ready, '--timeout=60s');
    await kubectl('exec', 'db', '--', 'sh', '-ec', 'echo after >/data/small');
    const dataSource = {
      apiGroup: 'snapshot.storage.k8s.io',
      kind: 'VolumeSnapshot',
      name: 'then',
    };
    const resources = { requests: { storage: '600Mi' } };
    await apply(
      { ...claim, metadata: named('copy'), spec: { ...claim.spec, resources, dataSource } },
      {
        ...pod,
        metadata: named('copy'),
        spec: {
          ...pod.spec,
          containers: [{ ...pod.spec.containers[0], command: ['sleep', '1d'] }],
          volumes: [{ name: 'data', persistentVolumeClaim: { claimName: 'copy' } }],
        },
      },
    );
    await kubectl('wait', 'pod/copy', '--for=condition=Ready', '--timeout=300s');
    const read = () => kubectl('exec', 'copy', '--', 'cat', '/data/small');
    expect(await read()).toBe('before\n');
    await kubectl('delete', 'volumesnapshot', 'then');
    await expect.poll(() => kubectl('get', 'volumesnapshotcontent', '-o', 'name')).toBe('');
    expect(await read()).toBe('before\n');
    await kubectl('delete', 'pod/copy', 'pvc/copy');
  });

  test('the API server restarts with what it had', async () => {
    await output(rig.control, 'stop-api');
    await expect(kubectl('get', 'pod', 'db')).rejects.toThrow('refused');
    await output(rig.control, 'start-api');
    expect(await kubectl('get', 'pod', 'db')).toContain('Running');
  });
});

/** Everything that a cluster has on this machine outside of its namespaces. */
async function tracesOf(one: Rig): Promise<Readonly<Record<string, string[]>>> {
  const directory = dirname(one.control);
  const [, , number] = one.nodeAddress.split('.');
  const linesWith = async (text: string, file: string, ...args: string[]): Promise<string[]> =>
    (await output(file, ...args)).split('\n').filter((line) => line.includes(text));
  return {
    cgroups: await linesWith('/', 'find', '/sys/fs/cgroup', '-name', basename(directory)),
    files: existsSync(directory) ? [directory] : [],
    links: await linesWith(`kube-rig-${number}@`, 'ip', '-brief', 'link'),
    disks: await linesWith(directory, 'losetup', '--list', '--noheadings', '-O', 'BACK-FILE'),
    processes: await linesWith(directory, 'ps', '-e', '-o', 'args='),
  };
}
const NOTHING = { cgroups: [], files: [], links: [], disks: [], processes: [] };

/** A second cluster, whose command ends with status 7 at the end of its input. */
async function startBeside() {
  // A process group of its own, as a terminal makes one for each command.
  const child = spawn(RUN, ['bash', '-c', 'echo "$KUBE_RIG"; read -r _; exit 7'], {
    detached: true,
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const { pid } = child;
  if (pid === undefined) throw new Error(`${RUN} cannot be started`);
  const ended = new Promise<number | null>((resolve) => child.on('close', resolve));
  const path = await new Promise<string>((resolve) =>
    child.stdout.setEncoding('utf8').once('data', resolve),
  );
  return {
    rig: readRig(path.trim()),
    endInput: () => child.stdin.end(),
    signal: (name: 'SIGINT' | 'SIGKILL') => process.kill(-pid, name),
    ended,
  };
}

describe('a second cluster', () => {
  test('leaves nothing when its command ends, and has the status of the command', async () => {
    const setting = '/proc/sys/kernel/panic'; // the kubelet wants 10
    const before = readFileSync(setting, 'utf8');
    writeFileSync(setting, '3');
    const beside = await startBeside().finally(() => {
      const after = readFileSync(setting, 'utf8');
      writeFileSync(setting, before);
      expect(after).toBe('3\n');
    });
    expect(beside.rig.nodeAddress).not.toBe(rig.nodeAddress);
    for (const [kind, traces] of Object.entries(await tracesOf(beside.rig)))
      expect(traces, kind).not.toEqual([]);
    beside.endInput();
    expect(await beside.ended).toBe(7);
    expect(await tracesOf(beside.rig)).toEqual(NOTHING);
    expect(await kubectl('get', 'pod', 'db')).toContain('Running');
  });

  test('ends with Ctrl-C; after a kill the next run removes what is left', async () => {
    const killed = await startBeside();
    killed.signal('SIGKILL');
    await killed.ended;
    await expect.poll(async () => (await tracesOf(killed.rig))['processes']).toEqual([]);
    const beside = await startBeside();
    expect(await tracesOf(killed.rig)).toMatchObject({ cgroups: [], files: [], disks: [] });
    beside.signal('SIGINT');
    expect(await beside.ended).toBe(130);
    expect(await tracesOf(beside.rig)).toEqual(NOTHING);
  });
});
