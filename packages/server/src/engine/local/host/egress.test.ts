import { expect, test } from 'vitest';
import { lackOf } from './egress.ts';

const LISTED = `table inet howdah-0badf00d {
	comment "/srv/h/data in 1:2"
	chain output {
		type filter hook output priority filter; policy accept;
		meta skuid 70000-89999 meta l4proto != tcp reject with icmpx admin-prohibited
		meta skuid 70000-89999 tcp flags & (syn | ack) == syn reject with tcp reset
	}
}`;

test('a packet filter holds back the users that it names, by both of its rules', () => {
  expect(lackOf(LISTED, [70_000, 89_999])).toBeNull();
  expect(lackOf(LISTED, [])).toBeNull();
  expect(lackOf(LISTED, [70_000, 90_000])).toBe('it lets user 90000 send what is not TCP');
  expect(lackOf(LISTED.replace(/.*tcp flags.*\n/, ''), [70_000])).toBe(
    'it lets user 70000 begin connections',
  );
  expect(lackOf(LISTED.replaceAll('70000-89999', '70001'), [70_001])).toBeNull();
  expect(lackOf(null, [])).toBe('it is missing');
});
