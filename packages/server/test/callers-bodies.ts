/** Good bodies of calls that change things, for the table of callers. */
export const service = { name: 'called', service_type: 'POSTGRES' };
export const kit = {
  howdah: 'recovery kit',
  installation_id: 'elsewhere',
  repository: { name: 'there', type: 's3' },
  passphrase: 'of another installation',
};
export const set = { name: 'called', nodes: 1, cpu_millis: 250, memory_gbs: 1 };
export const series = {
  name: 'connections',
  from: '2026-01-01T00:00:00Z',
  to: '2026-01-01T01:00:00Z',
};
export const bucket = { endpoint: 'https://a', bucket: 'made', region: 'a', key_id: 'a', key: 'a' };
