import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  addressAt,
  cidrText,
  hostOf,
  nextHost,
  overlap,
  parseCidr,
  serviceCapacity,
  trustedCidr,
  vpcCidrProblem,
  parseCidrBlock,
} from './cidr.ts';

test('a VPC is a private network of /16 to /28 without host bits', () => {
  for (const text of [
    '10.0.0.0/16',
    '10.255.255.240/28',
    '172.16.0.0/16',
    '172.31.0.0/16',
    '192.168.0.0/16',
    '192.168.7.64/26',
  ])
    expect(vpcCidrProblem(text), text).toBeNull();
});

test.each([
  ['10.0.0.0', 'an IPv4 network'],
  ['', 'an IPv4 network'],
  ['10.0.0.0/33', 'an IPv4 network'],
  ['10.0.0.0/-1', 'an IPv4 network'],
  ['10.0.0/16', 'an IPv4 network'],
  ['010.0.0.0/16', 'an IPv4 network'],
  ['0x0a.0.0.0/16', 'an IPv4 network'],
  ['10.0.0.256/24', 'an IPv4 network'],
  ['10.0.0.0/16 ', 'an IPv4 network'],
  ['fd00::/16', 'an IPv4 network'],
  ['10.0.0.0/016', 'an IPv4 network'],
  ['10.0.0.0/08', '10.0.0.0/8'],
  ['10.0.0.1/16', 'the network is 10.0.0.0/16'],
  ['192.168.1.17/28', 'the network is 192.168.1.16/28'],
  ['10.0.0.0/15', '/16 to /28'],
  ['10.0.0.0/29', '/16 to /28'],
  ['8.8.0.0/16', 'private'],
  ['172.15.0.0/16', 'private'],
  ['172.32.0.0/16', 'private'],
  ['192.169.0.0/16', 'private'],
  ['100.64.0.0/16', 'private'],
  ['169.254.0.0/16', 'private'],
])('%j is none', (text, why) => {
  expect(vpcCidrProblem(text)).toContain(why);
});

const cidrs = fc
  .tuple(fc.integer({ min: 0, max: 0xffffffff }), fc.integer({ min: 16, max: 28 }))
  .map(([number, bits]) => {
    const size = 2 ** (32 - bits);
    return { first: number - (number % size), bits };
  });

test('a network is read as it was written', () => {
  fc.assert(
    fc.property(cidrs, (cidr) => {
      expect(parseCidr(cidrText(cidr))).toEqual({ ...cidr, exact: true });
    }),
  );
});

test('two networks overlap when one has an address of the other', () => {
  fc.assert(
    fc.property(cidrs, cidrs, fc.nat(), (a, b, n) => {
      const inA = a.first + (n % 2 ** (32 - a.bits));
      const inB = inA >= b.first && inA < b.first + 2 ** (32 - b.bits);
      if (inB) expect(overlap(a, b)).toBe(true);
      expect(overlap(a, b)).toBe(overlap(b, a));
      expect(overlap(a, a)).toBe(true);
    }),
  );
  expect(overlap(trustedCidr('10.1.0.0/16'), trustedCidr('10.1.255.240/28'))).toBe(true);
  expect(overlap(trustedCidr('10.1.0.0/16'), trustedCidr('10.2.0.0/16'))).toBe(false);
});

test('every address of the lower half is given once; one that was returned comes last', () => {
  fc.assert(
    fc.property(fc.integer({ min: 24, max: 28 }), fc.nat(), (bits, from) => {
      const cidr = { first: trustedCidr('10.9.0.0/16').first, bits };
      const capacity = serviceCapacity(cidr);
      const taken = new Set<number>();
      let last = 1 + (from % capacity);
      for (let n = 0; n < capacity; n++) {
        const host = nextHost(cidr, last, taken);
        if (host === null) throw new Error(`full after ${n}`);
        expect(taken.has(host)).toBe(false);
        expect(host).toBeGreaterThan(1);
        expect(host).toBeLessThan(2 ** (32 - bits) / 2);
        expect(hostOf(cidr, addressAt(cidr, host))).toBe(host);
        taken.add(host);
        last = host;
      }
      expect(nextHost(cidr, last, taken)).toBeNull();
      taken.delete(last);
      expect(nextHost(cidr, last, taken)).toBe(last);
    }),
  );
  const cidr = trustedCidr('10.1.0.0/28');
  expect(serviceCapacity(cidr)).toBe(6);
  expect(addressAt(cidr, nextHost(cidr, 1, new Set()) ?? 0)).toBe('10.1.0.2');
  expect(addressAt(cidr, nextHost(cidr, 2, new Set()) ?? 0)).toBe('10.1.0.3');
  expect(addressAt(cidr, nextHost(cidr, 7, new Set()) ?? 0)).toBe('10.1.0.2');
});

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
