/** The texts that the OpenAPI document allows are those that the server takes. */
import { NETWORK_PATTERN, VPC_CIDR_PATTERN } from '@howdah/contract';
import { assert, constantFrom, integer, nat, property, stringMatching, tuple } from 'fast-check';
import { expect, test } from 'vitest';
import { cidrText, vpcCidrProblem } from './cidr.ts';

test('each network that the document allows a VPC is one', () => {
  assert(
    property(stringMatching(new RegExp(VPC_CIDR_PATTERN)), (text) => {
      expect(vpcCidrProblem(text), text).toBeNull();
    }),
    { numRuns: 500 },
  );
});

test('the document allows each network that a VPC can have', () => {
  const network = tuple(
    constantFrom([10, 0], [172, 16], [172, 31], [192, 168]),
    nat(65_535),
    integer({ min: 16, max: 28 }),
  ).map(([[one = 0, two = 0], low, bits]) => {
    const number = (one * 256 + two) * 65_536 + low;
    return cidrText({ first: number - (number % 2 ** (32 - bits)), bits });
  });
  assert(
    property(network, (text) => {
      expect(vpcCidrProblem(text), text).toBeNull();
      expect(text).toMatch(new RegExp(VPC_CIDR_PATTERN));
    }),
    { numRuns: 500 },
  );
});

test('the document allows each network of an allow list, and nothing without a size', () => {
  const pattern = new RegExp(NETWORK_PATTERN);
  for (const text of [
    '0.0.0.0/0',
    '203.0.113.0/24',
    '255.255.255.255/32',
    '2001:db8::/32',
    '::/0',
    '::1/128',
  ])
    expect(text).toMatch(pattern);
  for (const text of ['', '0', '203.0.113.1', '256.0.0.0/8', '1.2.3.4/33', '::/129', 'x::/1'])
    expect(text).not.toMatch(pattern);
});
