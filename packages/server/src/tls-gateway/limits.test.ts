/** Places are taken up to each limit, and left once. */
import { expect, test } from 'vitest';
import { createPlaces } from './limits.ts';

const take = (places: ReturnType<typeof createPlaces>, project: string, service: string) => {
  const place = places.takeSession({ project, service });
  return 'full' in place ? place.full : 'taken';
};

test('one service and one project cannot take all places', () => {
  const places = createPlaces({ sessions: 16, handshakes: 10 });
  expect(take(places, 'a', '1')).toBe('taken');
  expect(take(places, 'a', '1')).toBe('taken');
  expect(take(places, 'a', '1')).toBe('sessions_of_service');
  expect(take(places, 'a', '2')).toBe('taken');
  expect(take(places, 'a', '2')).toBe('taken');
  expect(take(places, 'a', '3')).toBe('sessions_of_project');
  for (const project of ['b', 'c', 'd'])
    for (const service of ['1', '1', '2', '2'])
      expect(take(places, project, project + service)).toBe('taken');
  expect(take(places, 'e', '1')).toBe('sessions');
  // Refused ones have left all that they had taken.
  expect(places.count().sessions).toBe(16);
});

test('a place that is left twice is free once', () => {
  const places = createPlaces({ sessions: 8, handshakes: 10 });
  const first = places.takeSession({ project: 'a', service: '1' });
  const second = places.takeSession({ project: 'b', service: '2' });
  if ('full' in first || 'full' in second) throw new Error('there are eight places');
  first.leave();
  first.leave();
  expect(places.count().sessions).toBe(1);
  expect(take(places, 'b', '2')).toBe('sessions_of_service');
  second.leave();
  expect(places.count().sessions).toBe(0);
});

test('one address, or network of IPv6, cannot take all handshakes', () => {
  const places = createPlaces({ sessions: 8, handshakes: 8 });
  const full = (address: string) => {
    const place = places.takeHandshake(address);
    return 'full' in place ? place.full : 'taken';
  };
  expect(['10.0.0.1', '::ffff:10.0.0.1', '10.0.0.1'].map(full)).toEqual([
    'taken',
    'taken',
    'handshakes_of_address',
  ]);
  expect(['2001:db8::1', '2001:db8:0:ff:ff::2', '2001:db8::3'].map(full)).toEqual([
    'taken',
    'taken',
    'handshakes_of_address',
  ]);
  expect(full('fe80::1%eth0')).toBe('taken');
  for (let number = 2; places.count().handshakes < 8; number += 1)
    expect(full(`10.0.0.${number}`)).toBe('taken');
  expect(full('10.0.1.1')).toBe('handshakes');
});
