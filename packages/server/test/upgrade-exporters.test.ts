/** A metadata database of the release before exporters had UUIDs and retentions 180 days. */
import { sql } from 'kysely';
import { expect, test } from 'vitest';
import { install } from './harness.ts';
import { openMetadata, SINCE_0057 } from './metadata.ts';

const OLDER_ID = 'exporter01';

/** As the older release left it. */
const OLDER = [
  ...SINCE_0057,
  'drop table login_requests',
  'alter table services drop constraint services_metric_exporter_id_fkey',
  `update services set metric_exporter_id = '${OLDER_ID}',
     doc = replace(doc, (select id from exporters where name = 'scraped'), '${OLDER_ID}')
   where metric_exporter_id is not null`,
  `update exporters set id = '${OLDER_ID}',
     config = config - 'enable_pg_metrics' || '{"include_pg_metrics": true}'
   where name = 'scraped'`,
  'alter table exporters drop column former_id',
  `alter table services add constraint services_metric_exporter_id_fkey
     foreign key (metric_exporter_id) references exporters`,
  ...['services.backup_retention_days', 'projects.max_backup_retention_days'].map((place) => {
    const [table = '', column = ''] = place.split('.');
    return `alter table ${table} drop constraint ${table}_${column}_check,
      add constraint ${table}_${column}_check check (${column} between 1 and 90)`;
  }),
  "delete from kysely_migration where name >= '0054'",
];

test(
  'an exporter of an older release gets a UUID, and its former id stays valid',
  { tags: 'slow' },
  async () => {
    const cloud = await install({ HOWDAH_SPARES: '0' });
    const service = await cloud.create({ name: 'measured', service_type: 'POSTGRES' });
    const asked = (method: string, path: string, body?: unknown) =>
      cloud.request(method, path, body);
    const make = (name: string) =>
      asked('POST', '/exporters', {
        name,
        type: 'PROMETHEUS_METRICS',
        region_code: 'local',
        config: {
          username: 'me',
          password: 'long-enough-word',
          enable_pg_metrics: name === 'scraped',
        },
      });
    const { exporter_id: first } = Object((await make('scraped')).body);
    expect((await make('other')).status).toBe(201);
    const attach = `/services/${service.service_id}/attachToExporter`;
    expect((await asked('POST', attach, { exporter_id: first })).status).toBe(200);
    const metadata = await openMetadata(cloud.home);
    await cloud.stop('SIGKILL');
    for (const statement of OLDER) await sql.raw(statement).execute(metadata.db);
    const before = await sql<{ doc: string }>`select doc from services`.execute(metadata.db);
    expect(before.rows[0]?.doc).toContain(`"metric_exporter_id":"${OLDER_ID}"`);
    await metadata.close();
    await cloud.up();

    const [exporter] = [(await asked('GET', '/exporters')).body].flat().map(Object);
    expect(exporter).toMatchObject({
      name: 'scraped',
      exporter_id: expect.stringMatching(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/),
      config: { enable_pg_metrics: true },
    });
    const { exporter_id: id } = exporter;
    expect(await cloud.get(service.service_id)).toMatchObject({ metric_exporter_id: id });
    expect((await asked('GET', `/exporters/${OLDER_ID}`)).body).toMatchObject({ exporter_id: id });
    // Prometheus has the former id in its configuration.
    const origin = `http://127.0.0.1:${cloud.port}`;
    const headers = { Authorization: `Basic ${btoa('me:long-enough-word')}` };
    for (const name of [OLDER_ID, id])
      expect((await fetch(`${origin}/exporters/${name}/metrics`, { headers })).status, name).toBe(
        200,
      );
    const detach = `/services/${service.service_id}/detachFromExporter`;
    expect((await asked('POST', detach, { exporter_id: OLDER_ID })).status).toBe(200);
    expect((await asked('POST', attach, { exporter_id: OLDER_ID })).status).toBe(200);
    expect((await asked('PATCH', `/exporters/${OLDER_ID}`, { name: 'renamed' })).status).toBe(200);
    const limit = { backup_retention_days: 180 };
    expect((await asked('POST', '/setLimits', limit)).status).toBe(200);
    expect(await cloud.destroy()).toEqual([]);
  },
);
