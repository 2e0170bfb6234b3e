/** The requests that pages of the console make, and how often. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CHROMIUM, NO_CHROMIUM } from './browser.ts';
import { enter, installation, setUp, tearDown } from './journeys-cloud.ts';
import { untilExpected } from '../../server/test/until.ts';

beforeAll(setUp);
afterAll(tearDown);

/** Pages with names of services, each with a call that events do not repeat. */
const PAGES = [
  { path: '/services', once: '/regions' },
  { path: '/project/audit', once: '/keys' },
] as const;

describe.skipIf(CHROMIUM === null)(`requests in Chromium${NO_CHROMIUM}`, () => {
  test('a page reads the list of services once, and again after an event', async () => {
    const service = await installation.create({ name: 'at first', addons: [] });
    for (const [index, { path, once }] of PAGES.entries()) {
      const { page } = await enter();
      const asked: string[] = [];
      page.on('request', (request) => {
        const [, call] = /\/projects\/\w+(\/\w+)$/.exec(new URL(request.url()).pathname) ?? [];
        if (call !== undefined) asked.push(call);
      });
      const times = (call: string): number => asked.filter((one) => one === call).length;
      await page.goto(path);
      await page
        .getByText('at first')
        .or(page.getByText(/^renamed/))
        .first()
        .waitFor();
      await untilExpected('the events are followed', () => expect(times('/events')).toBe(1));
      const name = `renamed ${index}`;
      await installation.request('POST', `/services/${service.service_id}/rename`, { name });
      await page.getByText(name).first().waitFor();
      // The lists that events concern are read again, the others are not; and all parts of a page
      // share one list of services, as they share the deleted ones.
      expect([path, times(once)]).toEqual([path, 1]);
      expect([path, times('/services')]).toEqual([path, times('/deletedServices')]);
    }
  });
});
