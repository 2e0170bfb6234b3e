import { expect, test } from 'vitest';
import { addressOf, splitList } from './dump.ts';

test('the schemas of a dump are restored apart, and what the superuser owns is left out', () => {
  const list = [
    ';',
    '; Archive created at 2026-11-26 03:00:00 UTC',
    '7; 2615 16390 SCHEMA - sales tsdbadmin',
    '8; 2615 16391 SCHEMA - postgis howdah',
    '3401; 0 0 ACL - SCHEMA postgis howdah',
    '2; 3079 16392 EXTENSION - hstore ',
    '215; 1259 16400 TABLE sales SCHEMA - orders tsdbadmin',
    '216; 1259 16401 TABLE public ; 2615 1 SCHEMA - x tsdbadmin',
    '',
  ].join('\n');
  expect(splitList(list)).toEqual({
    schemas: '7; 2615 16390 SCHEMA - sales tsdbadmin\n',
    rest:
      '2; 3079 16392 EXTENSION - hstore \n' +
      '215; 1259 16400 TABLE sales SCHEMA - orders tsdbadmin\n' +
      '216; 1259 16401 TABLE public ; 2615 1 SCHEMA - x tsdbadmin\n',
  });
});

test('the name of a database cannot change the address', () => {
  expect(addressOf({ socket: '/run/it' }, String.raw`x' host='elsewhere\ `)).toBe(
    String.raw`host=/run/it port=5432 user=tsdbadmin dbname='x\' host=\'elsewhere\\ '`,
  );
});
