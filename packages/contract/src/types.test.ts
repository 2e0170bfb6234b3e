import { expect, test } from 'vitest';
import { ApiError, ERROR_CODES, ERROR_STATUS } from './errors.ts';
import { ADDONS_OF_TYPE, SERVICE_TYPES, typeOfAddons } from './types.ts';

test('the error codes are those of the contract', () => {
  const printed = `INVALID_REQUEST 400, INVALID_STATE 400, UNAUTHORIZED 401, FORBIDDEN 403,
    NOT_FOUND 404, METHOD_NOT_ALLOWED 405, CONFLICT 409, PAYLOAD_TOO_LARGE 413,
    UNSUPPORTED_MEDIA_TYPE 415, UNAVAILABLE_HERE 422, LIMIT_EXCEEDED 422, RATE_LIMITED 429,
    INTERNAL 500, UNAVAILABLE 503`;
  expect(ERROR_CODES.map((code) => `${code} ${ERROR_STATUS[code]}`)).toEqual(printed.split(/,\s+/));
  expect(new ApiError('CONFLICT', 'why', { field: 1 })).toMatchObject({
    code: 'CONFLICT',
    message: 'why',
    details: { field: 1 },
  });
});

test('add-ons decide the type', () => {
  expect(typeOfAddons([])).toBe('POSTGRES');
  expect(typeOfAddons(['time-series'])).toBe('TIMESCALEDB');
  expect(typeOfAddons(['ai'])).toBe('VECTOR');
  expect(typeOfAddons(['ai', 'time-series'])).toBe('TIMESCALEDB');
  for (const type of SERVICE_TYPES) expect(typeOfAddons(ADDONS_OF_TYPE[type])).toBe(type);
});
