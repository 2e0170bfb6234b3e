/** What the audit reads of the records. */
import type { LiveStatus } from '@howdah/contract';
import { Client, type ClientConfig } from 'pg';

export type AuditRecords = {
  services: { id: string; status: LiveStatus; port: number; power: 'running' | 'paused'; spare: boolean; operationId: string | null }[];
  /** Sentences about records that contradict each other. */
  contradictions: string[];
};

/** Reads the records of an installation, whether or not its control plane runs. */
export async function readAuditRecords(connection: ClientConfig): Promise<AuditRecords> {
  const client = new Client({ ...connection, application_name: 'howdah audit' });
  client.on('error', () => undefined); // the statement under way is told
  await client.connect();
  try {
    const services = await client.query<AuditRecords['services'][number]>(
      `select id, status, port, power, project_id is null as spare, operation_id as "operationId"
       from services`,
    );
    const contradictions = await client.query<{ text: string }>(CONTRADICTIONS);
    return { services: services.rows, contradictions: contradictions.rows.map(({ text }) => text) };
  } finally {
    await client.end();
  }
}

/** The invariants I1, I4, I5 and I9 of docs/operating.md, each as a query for what breaks it. */
const CONTRADICTIONS = `
  select format('operation %s (%s) is under way on service %s, which does not know of it', o.id, o.kind, o.service_id) as text
  from operations o left join services s on s.id = o.service_id
  where o.finished is null and s.operation_id is distinct from o.id
  union all
  select format('service %s names operation %s, which has ended', s.id, s.operation_id)
  from services s join operations o on o.id = s.operation_id where o.finished is not null
  union all
  select format('service %s is %s with no operation under way', id, status)
  from services
  where operation_id is null and project_id is not null and deleted_at is null and status not in ('READY', 'PAUSED', 'UNSTABLE')
  union all
  select format('service %s has no operation that created it', id) from services s
  where project_id is not null and not exists (select from operations o where o.service_id = s.id and o.kind in ('create', 'fork'))
  union all
  select format('the document of service %s says another status or port than its record', id)
  from services
  where doc <> '' and (doc::json ->> 'status' <> status or (doc::json -> 'endpoint' ->> 'port')::int <> port)
  union all
  select format('the lease on service %s ended %s ago and was neither given back nor taken over', id, now() - lease_until)
  from services where lease_until < now() - interval '10 seconds'`;
