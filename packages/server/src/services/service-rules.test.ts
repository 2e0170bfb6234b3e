import { ApiError } from '@howdah/contract';
import { expect, test } from 'vitest';
import { cpuBoundOrRefuse } from './service-rules.ts';

const region = (boundsCpu: boolean) => ({ code: 'local', engine: { capabilities: { boundsCpu } } });
const OPERATOR = { operates: true };
const TENANT = { operates: false };

test('a request that does not name the bound keeps it', () => {
  for (const before of [true, false, null])
    expect(cpuBoundOrRefuse(region(true), TENANT, undefined, before)).toBe(before);
});

test('everybody may bound a service, and have it as its region again', () => {
  for (const asked of [true, null])
    for (const bounds of [true, false])
      expect(cpuBoundOrRefuse(region(bounds), TENANT, asked, false)).toBe(asked);
});

test('only the operator exempts a service from the bound of its region', () => {
  expect(cpuBoundOrRefuse(region(true), OPERATOR, false, null)).toBe(false);
  expect(() => cpuBoundOrRefuse(region(true), TENANT, false, true)).toThrow(ApiError);
  expect(cpuBoundOrRefuse(region(true), TENANT, false, false)).toBe(false);
});

test('an exemption is not kept where the region has no bound', () => {
  for (const caller of [OPERATOR, TENANT])
    expect(cpuBoundOrRefuse(region(false), caller, false, true)).toBeNull();
});
