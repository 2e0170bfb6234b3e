import { Client } from '@modelcontextprotocol/client';
import { InMemoryTransport } from '@modelcontextprotocol/server';
import { setTimeout as sleep } from 'node:timers/promises';
import { Type } from 'typebox';
import { expect, test } from 'vitest';
import { addTool, askUser, confirmed, noteWarning, ToolServer } from './tool.ts';

test('a warning of the API is in the result of its own tool only', async () => {
  const server = new ToolServer({ name: 'test', version: '1' });
  const input = Type.Object({ warning: Type.Optional(Type.String()) });
  addTool(
    server,
    'make',
    { title: 'Make', description: 'makes something', kind: 'make', input },
    async ({ warning }) => {
      if (warning !== undefined) noteWarning(warning);
      // The others begin before this one ends.
      await sleep(1);
      return { summary: 'It is made.', data: {} };
    },
  );
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  const client = new Client({ name: 'test', version: '1' });
  await Promise.all([server.connect(ours), client.connect(theirs)]);
  const calls = [{}, { warning: 'ignored: a' }, { warning: 'ignored: b' }];
  const results = await Promise.all(
    calls.map((args) => client.callTool({ name: 'make', arguments: args })),
  );
  expect(results.map(({ content }) => JSON.stringify(content))).toEqual([
    expect.stringContaining('It is made.\\n'),
    expect.stringContaining('It is made. Warning: ignored: a\\n'),
    expect.stringContaining('It is made. Warning: ignored: b\\n'),
  ]);
  await client.close();
});

test('a service is confirmed by its exact name only', () => {
  const found = { name: 'orders', metadata: { environment: 'PROD' } };
  expect(confirmed(found, 'orders')).toBe(found);
  for (const echo of ['', 'order', 'orders ', 'Orders', 'yes'])
    expect(() => confirmed(found, echo), echo).toThrow(
      'the service is named "orders", and is PROD',
    );
});

/** The answer of a tool that asks the user. @param answer null: of a client that cannot ask */
async function callAsking(answer: object | null): Promise<string> {
  const server = new ToolServer({ name: 'test', version: '1' });
  const orders = { name: 'orders', service_id: 'abcdefghij', metadata: { environment: 'PROD' } };
  addTool(
    server,
    'end',
    { title: 'End', description: 'ends orders', kind: 'destroy', input: Type.Object({}) },
    async () => {
      askUser(orders);
      return { summary: 'It has ended.', data: {} };
    },
  );
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  const capabilities = answer === null ? {} : { elicitation: {} };
  const client = new Client({ name: 'test', version: '1' }, { capabilities });
  if (answer !== null)
    client.setRequestHandler('elicitation/create', async () => Object({ ...answer }));
  await Promise.all([server.connect(ours), client.connect(theirs)]);
  const { content } = await client.callTool({ name: 'end', arguments: {} });
  await client.close();
  return JSON.stringify(content);
}

test('the user types the name, if the client can ask; else the tool goes on', async () => {
  const typed = (name: string) => ({ action: 'accept', content: { name } });
  expect(await callAsking(null)).toContain('It has ended.');
  expect(await callAsking(typed('orders'))).toContain('It has ended.');
  expect(await callAsking(typed('order'))).toContain('DECLINED: the user has typed another name');
  expect(await callAsking({ action: 'decline' })).toContain('DECLINED: the user has declined end');
  expect(await callAsking({ action: 'cancel' })).toContain('DECLINED');
});
