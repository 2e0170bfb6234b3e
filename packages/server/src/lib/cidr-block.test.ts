import { expect, test } from 'vitest';
import { parseCidrBlock } from './cidr-block.ts';

test.each([
  ['203.0.113.0/24', '203.0.113.0/24'],
  ['203.0.113.7/32', '203.0.113.7/32'],
  ['0.0.0.0/0', '0.0.0.0/0'],
  ['10.0.0.0/8', '10.0.0.0/8'],
  ['2001:db8::/32', '2001:db8::/32'],
  ['2001:DB8:0:0::/32', '2001:db8::/32'],
  ['2001:0db8:0000:0000:0000:0000:0000:0001/128', '2001:db8::1/128'],
  ['::/0', '::/0'],
  ['::1/128', '::1/128'],
])('%s is the network %s', (text, network) => {
  expect(parseCidrBlock(text)).toEqual({ network });
});

test.each([
  ['203.0.113.7/24', 'the network is 203.0.113.0/24'],
  ['10.1.2.3/0', 'the network is 0.0.0.0/0'],
  ['2001:db8::7/32', 'the network is 2001:db8::/32'],
  ['::1/0', 'the network is ::/0'],
  ['203.0.113.7', 'a single address is written 203.0.113.7/32'],
  ['2001:db8::1', 'a single address is written 2001:db8::1/128'],
  ['::ffff:203.0.113.0/120', 'name the IPv4 network'],
  ['::ffff:0:0/96', 'name the IPv4 network'],
  ['203.0.113.0/33', 'allowed are networks like'],
  ['203.0.113.0/024', 'allowed are networks like'],
  ['203.0.113/24', 'allowed are networks like'],
  ['2001:db8::/129', 'allowed are networks like'],
  ['2001:db8::/032', 'allowed are networks like'],
  ['2001:db8::%1/64', 'allowed are networks like'],
  ['fe80::%lo/64', 'allowed are networks like'],
  ['2001:db8::g/64', 'allowed are networks like'],
  ['all', 'allowed are networks like'],
  ['example.com/24', 'allowed are networks like'],
  ['203.0.113.0/24 # comment', 'allowed are networks like'],
  ['203.0.113.0/24\nhostssl all all all trust', 'allowed are networks like'],
  ['', 'allowed are networks like'],
])('%j is refused: %s', (text, why) => {
  expect(parseCidrBlock(text)).toEqual({ problem: expect.stringContaining(why) });
});
