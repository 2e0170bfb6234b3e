/** The role rules at a terminal: what the key may not do is refused before a question is asked. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { tmpdir } from 'node:os';
import { expect, onTestFinished, test } from 'vitest';
import type { Role } from '@howdah/contract/types';
import { HOWDAH, serve } from './api.ts';

/** Runs a command on a terminal, where nobody types. */
async function onTerminal(line: string, env: Record<string, string>) {
  const command = `'${process.execPath}' '${HOWDAH}' ${line}`;
  const child = spawn(
    'script',
    ['--quiet', '--return', '--flush', '--command', command, '/dev/null'],
    {
      env: { TERM: 'xterm', PATH: process.env['PATH'] ?? '', ...env },
      stdio: ['pipe', 'pipe', 'inherit'],
      timeout: 800_000,
    },
  );
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (part: string) => (text += part));
  await once(child, 'close');
  return { code: child.exitCode, text };
}

/** An API that answers to a key with this role. */
async function apiFor(role: Role) {
  const key = {
    public_key: 'HDother',
    name: 'other',
    role,
    created: '2026-01-01T00:00:00.000Z',
    project: { id: 'n765kku04j', name: 'default', plan_type: 'self-hosted' },
    issuing_user: { id: 'owner', name: 'Owner', email: 'owner@howdah.local' },
  };
  const served = await serve({
    getAuthInfo: { status: 200, body: { type: 'apiKey', api_key: key, apiKey: key } },
  });
  onTestFinished(() => served.close());
  return { ...served, env: { ...served.env, HOWDAH_HOME: join(tmpdir(), 'hd-none') } };
}

test('a developer needs an admin for a PROD service, and is not asked for its name', async () => {
  const { env, changed } = await apiFor('developer');
  for (const verb of ['delete', 'stop', 'restart', 'purge']) {
    const { code, text } = await onTerminal(`service ${verb} orders`, env);
    expect(code, verb).toBe(4);
    expect(text, verb).toMatch(/a key with the role developer may not .* the role admin/);
    expect(text, verb).not.toContain('Type orders');
  }
  expect(changed).toEqual([]);
});

test('a viewer is not asked whether a VPC, a key or a webhook is to be deleted', async () => {
  const { env, changed } = await apiFor('viewer');
  for (const line of [
    'vpc delete office',
    'key revoke ci',
    'webhook delete https://example.com/hook',
  ]) {
    const { code, text } = await onTerminal(line, env);
    expect(code, line).toBe(4);
    expect(text, line).toContain('a key with the role viewer may not do this');
    expect(text, line).not.toContain('[y/N]');
  }
  expect(changed).toEqual([]);
});
