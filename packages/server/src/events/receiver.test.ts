import { expect, test } from 'vitest';
import { blockListOf } from './outgoing-request.ts';
import { deliver, whyNotReceiver } from './receiver.ts';

const none = blockListOf([]);
const MESSAGE = { id: 'msg_1', body: '{}' };
const SECRET = `whsec_${Buffer.alloc(32).toString('base64')}`;

/** Spellings of addresses of this machine and of private networks, as a URL takes them. */
const CLOSED = [
  '127.0.0.1',
  '127.1',
  '127.0.1',
  '2130706433',
  '0x7f000001',
  '0x7f.0.0.1',
  '0177.0.0.1',
  '017700000001',
  '0',
  '0.0.0.0',
  '127.0.0.1.',
  '１２７.0.0.1',
  '127。0。0。1',
  '10.0.0.1',
  '0xa000001',
  '012.0.0.1',
  '169.254.169.254',
  '2852039166',
  '[::1]',
  '[::]',
  '[0:0:0:0:0:0:0:1]',
  '[::127.0.0.1]',
  '[::ffff:127.0.0.1]',
  '[::ffff:7f00:1]',
  '[::ffff:0:127.0.0.1]',
  '[64:ff9b::127.0.0.1]',
  '[2002:7f00:1::]',
  '[2001::80ff:fffe]',
  '[fe80::1]',
  '[fd00::1]',
];
test.each(CLOSED)('a webhook to http://%s is refused, and not delivered', async (host) => {
  expect(await whyNotReceiver(`http://${host}/`, none)).toMatch(/private network|is no URL/);
  const { responseStatus, error } = await deliver(`http://${host}/`, SECRET, MESSAGE, none);
  expect(responseStatus).toBeNull();
  expect(error).toMatch(/private network|Invalid URL/);
});

test('a name is checked by the addresses that it has at the moment of the connection', async () => {
  // Resolved from the hosts file: it was public when the webhook was made, as far as anybody knows.
  const { responseStatus, error } = await deliver('http://localhost:9/', SECRET, MESSAGE, none);
  expect(responseStatus).toBeNull();
  expect(error).toContain('localhost is');
  expect(error).toContain('private network');
});

test('public addresses in any spelling are taken', async () => {
  for (const host of [
    '8.8.8.8',
    '0x08.8.8.8',
    '134744072',
    '[2606:4700::1111]',
    '[::ffff:8.8.8.8]',
  ])
    expect(await whyNotReceiver(`https://${host}/`, none), host).toBeNull();
});
