import { expect, test } from 'vitest';
import { majorOfImage } from './image.ts';

test.each([
  ['ghcr.io/cloudnative-pg/postgresql:17-standard-trixie', 17],
  ['pg:17.6', 17],
  ['registry:5000/pg:18.1-2@sha256:0123', 18],
  ['registry:5000/pg', null],
  ['pg:latest', null],
  ['pg:1705', null],
  ['pg@sha256:1717', null],
  ['pg:v17', null],
])('the major version of %s', (image, major) => {
  expect(majorOfImage(image)).toBe(major);
});
