import { expect, test } from 'vitest';
import { chooseNamed } from './cloud.ts';
import { explain } from './problem.ts';

const named = (service_id: string, name: string) => ({
  service_id,
  name,
  project_id: 'p',
  region_code: 'local',
  status: 'READY',
});

test('an id precedes names, and a name of several services is reported with them', () => {
  const services = [
    named('aaaaaaaaaa', 'orders'),
    named('bbbbbbbbbb', 'orders'),
    named('cccccccccc', 'aaaaaaaaaa'),
  ];
  expect(chooseNamed('aaaaaaaaaa', services, 'look')).toBe(services[0]);
  expect(chooseNamed('nobody', services, 'look')).toBeNull();
  let problem: unknown;
  try {
    chooseNamed('orders', services, 'look');
  } catch (error) {
    problem = explain(error);
  }
  expect(problem).toMatchObject({
    code: 'AMBIGUOUS',
    message: '2 services are named "orders": aaaaaaaaaa (local), bbbbbbbbbb (local)',
    candidates: [services[0], services[1]],
  });
});
