import { expect, test } from 'vitest';
import { serviceOrRefuse } from './auth.ts';

const SERVICE = { project_id: 'project', parent_id: null, deleted: false, created_by: null };

/** The service of a call in the project, with a route of this kind. */
function serviceOf(
  service: object | null,
  config: { deletedToo?: boolean; setsToo?: boolean } = {},
  purges = false,
) {
  const params = { project_id: 'project', service_id: 'service' };
  const request = Object({ params, routeOptions: { config } });
  return serviceOrRefuse(
    request,
    'service',
    service === null ? null : Object({ ...SERVICE, ...service }),
    purges,
  );
}

test('a service of the project is found', () => {
  expect(serviceOf({})).toMatchObject(SERVICE);
});

test('a service of another project is answered like one that does not exist', () => {
  const none = { code: 'NOT_FOUND', message: expect.stringContaining('no service') };
  expect(() => serviceOf(null)).toThrow(expect.objectContaining(none));
  expect(() => serviceOf({ project_id: 'other' })).toThrow(expect.objectContaining(none));
  expect(() =>
    serviceOf({ project_id: 'other' }, { deletedToo: true, setsToo: true }, true),
  ).toThrow(expect.objectContaining(none));
});

test('a deleted service is reached by its restore and its purge only', () => {
  expect(() => serviceOf({ deleted: true })).toThrow('service');
  expect(serviceOf({ deleted: true }, { deletedToo: true })).toMatchObject({ deleted: true });
  expect(serviceOf({ deleted: true }, {}, true)).toMatchObject({ deleted: true });
});

test('a read replica set is no service, but for calls that take both', () => {
  expect(() => serviceOf({ parent_id: 'parent' })).toThrow('is a read replica set of parent');
  expect(serviceOf({ parent_id: 'parent' }, { setsToo: true })).toMatchObject({
    parent_id: 'parent',
  });
});
