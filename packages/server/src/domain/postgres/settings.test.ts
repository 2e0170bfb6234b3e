import { defaultStorageGb, SERVICE_SIZES, type AddonExtension, type Size } from '@howdah/contract';
import { expect, test } from 'vitest';
import { quoted, serverSettings, type SettingsInput } from './settings.ts';

const SIZES: Size[] = ['shared', ...SERVICE_SIZES];
const TIMESCALE: AddonExtension[] = ['timescaledb'];
const of = (size: Size, more: Partial<SettingsInput> = {}) =>
  serverSettings({ size, major: 17, extensions: [], storageGb: defaultStorageGb(size), ...more });
const megabytes = (value: string | undefined): number => {
  const [, digits] = /^(\d+)MB$/.exec(value ?? '') ?? [];
  if (digits === undefined) throw new Error(`not in MB: ${value}`);
  return Number(digits);
};
const titled = SIZES.map((size): [string, Size] => [
  size === 'shared' ? size : `${size.cpuMillis}/${size.memoryGbs}`,
  size,
]);

/** Worked out by hand from the rules beside the settings. */
const EXPECTED: Record<string, Partial<Record<string, string>>> = {
  shared: {
    shared_buffers: '256MB',
    max_connections: '100',
    work_mem: '4MB',
    maintenance_work_mem: '64MB',
    effective_cache_size: '768MB',
  },
  '500/2': {
    shared_buffers: '512MB',
    max_connections: '100',
    work_mem: '5MB',
    maintenance_work_mem: '128MB',
    max_worker_processes: '4',
  },
  '1000/4': {
    shared_buffers: '1024MB',
    max_connections: '200',
    work_mem: '5MB',
    max_parallel_workers: '2',
    max_parallel_workers_per_gather: '2',
  },
  '2000/8': {
    shared_buffers: '2048MB',
    max_connections: '400',
    max_parallel_workers: '2',
    max_parallel_workers_per_gather: '2',
  },
  '4000/16': {
    shared_buffers: '4096MB',
    max_connections: '800',
    max_parallel_workers_per_gather: '2',
    max_wal_size: '8192MB',
  },
  '8000/32': {
    shared_buffers: '8192MB',
    max_connections: '1000',
    maintenance_work_mem: '2048MB',
    max_wal_size: '16384MB',
  },
  '16000/64': {
    shared_buffers: '16384MB',
    max_connections: '1000',
    work_mem: '16MB',
    maintenance_work_mem: '2048MB',
  },
  '32000/128': {
    shared_buffers: '32768MB',
    max_connections: '1000',
    max_parallel_workers: '32',
    max_worker_processes: '35',
  },
  '48000/192': {
    shared_buffers: '49152MB',
    max_connections: '1000',
    max_parallel_workers: '48',
    max_wal_size: '16384MB',
  },
  '64000/256': {
    shared_buffers: '65536MB',
    max_connections: '1000',
    max_parallel_workers_per_gather: '32',
    effective_cache_size: '196608MB',
  },
};
test.each(titled)('the settings of %s', (title, size) => {
  expect(of(size)).toMatchObject(EXPECTED[title] ?? { 'no such size': true });
});

/**
 * Of the numbers among the settings: what PostgreSQL takes (its own `postgres --describe-config`).
 */
const BOUNDS: Record<string, [number, number]> = {
  max_connections: [1, 262143],
  max_worker_processes: [0, 262143],
  max_parallel_workers: [0, 1024],
  max_parallel_workers_per_gather: [0, 1024],
  max_parallel_maintenance_workers: [0, 1024],
  max_wal_senders: [0, 262143],
  max_replication_slots: [0, 262143],
  'timescaledb.max_background_workers': [0, 1000],
  random_page_cost: [0, 1e300],
  log_parameter_max_length: [-1, 2 ** 30],
  log_parameter_max_length_on_error: [-1, 2 ** 30],
};

test.each(titled)('%s: every value is one that PostgreSQL takes', (_title, size) => {
  for (const extensions of [[], TIMESCALE]) {
    for (const [name, value] of Object.entries(of(size, { extensions, major: 18 }))) {
      expect(name).toMatch(/^[a-z_]+(\.[a-z_]+)?$/);
      if (/^-?[0-9.]+$/.test(value)) {
        if (name === 'log_file_mode') continue;
        const [least, most] = BOUNDS[name] ?? [Number.NaN, Number.NaN];
        expect(Number(value), name).toBeGreaterThanOrEqual(least);
        expect(Number(value), name).toBeLessThanOrEqual(most);
      } else if (/^\d+(MB|d|s)$/.test(value)) expect(value).not.toMatch(/^0/);
      else
        expect(value, name).toMatch(
          /^('[^'\n]*'|on|off|sync|syncfs|top|logical|jsonlog|scram-sha-256)$/,
        );
    }
  }
});

test.each(titled)('%s: what depends on each other fits together', (_title, size) => {
  for (const extensions of [[], TIMESCALE]) {
    const settings = of(size, { extensions });
    const number = (name: string) => Number(settings[name]);
    const memoryMb = size === 'shared' ? 1024 : size.memoryGbs * 1024;
    expect(number('max_parallel_workers')).toBeLessThanOrEqual(number('max_worker_processes'));
    expect(number('max_parallel_workers_per_gather')).toBeLessThanOrEqual(
      number('max_parallel_workers'),
    );
    expect(number('max_parallel_maintenance_workers')).toBeLessThanOrEqual(
      number('max_parallel_workers'),
    );
    expect(number('max_worker_processes') - number('max_parallel_workers')).toBeGreaterThanOrEqual(
      2 + (extensions.length === 0 ? 0 : number('timescaledb.max_background_workers')),
    );
    expect(megabytes(settings['min_wal_size'])).toBeLessThan(megabytes(settings['max_wal_size']));
    expect(megabytes(settings['shared_buffers'])).toBeLessThanOrEqual(memoryMb / 4);
    expect(megabytes(settings['shared_buffers'])).toBeLessThan(
      megabytes(settings['effective_cache_size']),
    );
    // A sort in every third connection, and the buffers, stay within the memory.
    expect(
      megabytes(settings['work_mem']) * (number('max_connections') / 3) +
        megabytes(settings['shared_buffers']),
    ).toBeLessThanOrEqual(memoryMb);
    expect(megabytes(settings['max_slot_wal_keep_size'])).toBeGreaterThanOrEqual(1024);
  }
});

test('a larger size never gets less', () => {
  const growing = [
    'shared_buffers',
    'effective_cache_size',
    'maintenance_work_mem',
    'max_connections',
    'max_worker_processes',
    'max_wal_size',
  ];
  for (const [index, size] of SIZES.entries()) {
    const smaller = SIZES[index - 1];
    if (smaller === undefined) continue;
    for (const name of [
      ...growing,
      'max_parallel_workers',
      'max_parallel_workers_per_gather',
      'max_slot_wal_keep_size',
    ])
      expect(Number.parseInt(of(size)[name] ?? '', 10), name).toBeGreaterThanOrEqual(
        Number.parseInt(of(smaller)[name] ?? '', 10),
      );
  }
});

test('settings of every server, for all sizes', () => {
  for (const size of SIZES) {
    expect(of(size)).toMatchObject({
      password_encryption: 'scram-sha-256',
      wal_level: 'logical',
      logging_collector: 'on',
      log_destination: "'jsonlog'",
      log_parameter_max_length: '0',
      log_parameter_max_length_on_error: '0',
      shared_preload_libraries: "'pg_stat_statements'",
    });
  }
});

test('settings that depend on extensions and on the major', () => {
  const small = SERVICE_SIZES[0];
  expect(of(small, { extensions: TIMESCALE })['shared_preload_libraries']).toBe(
    "'timescaledb,pg_stat_statements'",
  );
  expect(of(small, { extensions: ['vector'] })['shared_preload_libraries']).toBe(
    "'pg_stat_statements'",
  );
  expect(of(small, { extensions: TIMESCALE })['timescaledb.telemetry_level']).toBe('off');
  expect(Object.keys(of(small)).filter((name) => name.startsWith('timescaledb'))).toEqual([]);
  expect(of(small, { major: 18 })['io_method']).toBe('sync');
  expect(of(small, { major: 17 })).not.toHaveProperty('io_method');
  expect(of(SERVICE_SIZES[8], { major: 18 })).not.toHaveProperty('io_method');
});

test('a value in quotes', () => {
  expect(quoted("/it's/here")).toBe("'/it''s/here'");
});

test('a quota bounds WAL and temporary files, by default no narrower than the size', () => {
  for (const size of SIZES) {
    const [bounded, unbounded] = [of(size), of(size, { storageGb: null })];
    expect(bounded['max_wal_size']).toBe(unbounded['max_wal_size']);
    expect(bounded['max_slot_wal_keep_size']).toBe(unbounded['max_slot_wal_keep_size']);
    expect(unbounded['temp_file_limit']).toBeUndefined();
  }
  const small = of('shared', { storageGb: 1 });
  expect(small).toMatchObject({
    max_wal_size: '125MB',
    min_wal_size: '62MB',
    max_slot_wal_keep_size: '250MB',
    temp_file_limit: '200MB',
  });
});

test('the module for read-only sessions is loaded last, whatever is in its path', () => {
  const path = `/srv/a "b", it's`;
  expect(of('shared', { readOnlyModule: path })['shared_preload_libraries']).toBe(
    `'pg_stat_statements,"/srv/a ""b"", it''s"'`,
  );
  expect(of('shared')['shared_preload_libraries']).toBe("'pg_stat_statements'");
});
