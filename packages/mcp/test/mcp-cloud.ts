/** An installation, its tools over both transports, and keys with different rights. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { request } from 'node:http';
import type { Schemas } from '@howdah/client';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { expect } from 'vitest';
import { HOWDAH, install, type Installation } from '../../server/test/harness.ts';

export let cloud: Installation;

let url: string;

let endHttp: () => Promise<void>;

export const keys: Record<'viewer' | 'developer' | 'forkOnly' | 'dryRunOnly', string> = {
  viewer: '',
  developer: '',
  forkOnly: '',
  dryRunOnly: '',
};

export async function keyOf(body: Schemas['CreateKey']): Promise<string> {
  const { data } = await cloud.client.POST('/projects/{project_id}/keys', {
    params: { path: { project_id: cloud.projectId } },
    body,
  });
  return `${data?.public_key}:${data?.secret_key}`;
}

/** Starts `howdah mcp --http` on a port of its own. */
async function startHttp(): Promise<void> {
  const child = spawn(process.execPath, [HOWDAH, 'mcp', '--http', '--port', '0'], {
    env: cloud.env,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  child.stderr.setEncoding('utf8');
  for await (const text of child.stderr) {
    said += String(text);
    url = /http:\/\/127\.0\.0\.1:\d+\/mcp/.exec(said)?.[0] ?? '';
    if (url !== '') break;
  }
  if (url === '') throw new Error(`howdah mcp --http did not start: ${said}`);
  endHttp = async () => {
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    await ended;
  };
}

type Data = Record<string, unknown>;

type Answer = { data: Data; text: string; failed: boolean };

export type Caller = { call: (name: string, args?: Data) => Promise<Answer>; client: Client };

function callerOf(client: Client): Caller {
  const call = async (name: string, args: Data = {}): Promise<Answer> => {
    const { content, structuredContent, isError } = await client.callTool(
      { name, arguments: args },
      { timeout: 800_000 },
    );
    const [first] = content;
    const data: Data =
      typeof structuredContent === 'object' && structuredContent !== null
        ? { ...structuredContent }
        : {};
    return { data, text: first?.type === 'text' ? first.text : '', failed: isError === true };
  };
  return { call, client };
}

/** @param env beside that of the installation and the admin key */
type Stdio = { env?: Record<string, string>; args?: string[]; client?: Client };

export async function withStdio<T>(
  work: (caller: Caller) => Promise<T>,
  { env = {}, args = [], client = new Client({ name: 'test', version: '1' }) }: Stdio = {},
): Promise<T> {
  await client.connect(
    new StdioClientTransport({
      command: process.execPath,
      args: [HOWDAH, 'mcp', ...args],
      env: { ...cloud.env, HD_KEY: cloud.key, ...env },
    }),
  );
  try {
    return await work(callerOf(client));
  } finally {
    await client.close();
  }
}

export async function withHttp<T>(
  key: string,
  work: (caller: Caller) => Promise<T>,
  client = new Client({ name: 'test', version: '1' }),
): Promise<T> {
  await client.connect(
    new StreamableHTTPClientTransport(new URL(url), {
      requestInit: { headers: { Authorization: `Bearer ${key}` } },
    }),
  );
  try {
    return await work(callerOf(client));
  } finally {
    await client.close();
  }
}

export const READS = [
  'whoami',
  'get_usage',
  'list_regions',
  'list_services',
  'get_service',
  'list_backups',
  'list_extensions',
  'list_operations',
  'get_operation',
  'wait_for_operation',
  'get_logs',
  'get_metrics',
  'db_schema',
  'db_query',
  'explain',
  'diff',
  'list_vpcs',
  'list_allow_lists',
  'list_leases',
];

export const ENDS = [
  'stop_service',
  'restart_service',
  'reset_service',
  'upgrade_service',
  'delete_service',
];

export const DESTROYS = [...ENDS, 'purge_service', 'recover_service'];

/** Statements of the agent, on its own forks. */
export const WRITES = ['execute', 'apply_migration'];

/** Tools that take something away, by their hints. */
export const TAKES = [...WRITES, 'reset_password', 'return_lease'];

/** Changes of a thing that is no service: PATCH and DELETE have no Idempotency-Key. */
export const OF_LISTS = ['change_allow_list', 'delete_allow_list'];

export const CHANGES = [
  'create_service',
  'fork_service',
  'start_service',
  'resize_service',
  'restore_service',
  'verify_backup',
  'enable_extension',
  'cancel_operation',
  'set_ha',
  'set_pooler',
  'set_expiry',
  'set_auto_suspend',
  'reset_password',
  'set_vpc',
  'create_allow_list',
  'set_allow_list',
  'take_lease',
  'extend_lease',
  'return_lease',
  ...DESTROYS,
];

export async function idOf(name: string): Promise<string> {
  const { data } = await withStdio(({ call }) => call('get_service', { service: name }));
  return String(data['service_id']);
}

/** A raw request to the HTTP face, with headers that fetch would not send. */
export async function raw(
  headers: Record<string, string>,
  method = 'POST',
  path = '/mcp',
  body = '{}',
): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const { port } = new URL(url);
    const sent = request(
      {
        host: '127.0.0.1',
        port,
        path,
        method,
        headers: { 'Content-Type': 'application/json', ...headers },
      },
      (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (part: string) => (text += part));
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
      },
    );
    sent.on('error', reject);
    sent.end(body);
  });
}

export async function setUp(): Promise<void> {
  cloud = await install();
  keys.viewer = await keyOf({ name: 'v', role: 'viewer' });
  keys.developer = await keyOf({ name: 'd', role: 'developer' });
  keys.forkOnly = await keyOf({ name: 'f', role: 'developer', fork_only: true });
  keys.dryRunOnly = await keyOf({ name: 'p', role: 'developer', dry_run_only: true });
  await startHttp();
}

export async function tearDown(): Promise<void> {
  await endHttp?.();
  expect(await cloud?.destroy()).toEqual([]);
}
