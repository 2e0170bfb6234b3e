import { AUDIT_OUTCOMES, type AuditOutcome } from '@howdah/contract/values';
import { Button, NativeSelect } from '@mantine/core';
import { useInfiniteQuery } from '@tanstack/react-query';
import { ScrollText } from 'lucide-react';
import { useState } from 'react';
import { BASE } from '../api.ts';
import { readAudit, type AuditEntry, type AuditFilter } from '../api-project.ts';
import { KeyName, ServiceName } from '../components/names.tsx';
import { Rows } from '../components/Rows.tsx';
import { Ago, Card, CopyButton, Empty, PageHead, Pill, Unread } from '../components/ui.tsx';
import { useAreNamesRead } from '../live.ts';
import { useMe } from '../session.ts';
import { kindLabel } from '../status.ts';
import ui from './project.module.css';

const isOutcome = (value: string): value is AuditOutcome =>
  AUDIT_OUTCOMES.some((outcome) => outcome === value);

export function Audit() {
  const { project } = useMe();
  const [filter, setFilter] = useState<AuditFilter>({ outcome: null });
  const { data, error, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery({
    queryKey: ['audit', project.id, filter],
    queryFn: ({ pageParam, signal }) => readAudit(project.id, filter, pageParam, signal),
    initialPageParam: '',
    getNextPageParam: ({ next }) => next,
    refetchInterval: ({ state }) => ((state.data?.pages.length ?? 1) === 1 ? 5000 : false),
  });
  const areNamesRead = useAreNamesRead();
  const entries = data?.pages.flatMap((page) => page.entries);
  return (
    <>
      <PageHead
        title="Audit log"
        about="Every call that asked for a change: who made it, when, from where, and its outcome."
      >
        <div className={ui.row}>
          <NativeSelect
            aria-label="Outcome"
            value={filter.outcome ?? ''}
            onChange={({ currentTarget: { value } }) =>
              setFilter({ outcome: isOutcome(value) ? value : null })
            }
            data={[
              { value: '', label: 'Allowed and refused' },
              { value: 'allowed', label: 'Allowed' },
              { value: 'refused', label: 'Refused' },
            ]}
          />
          <Button
            component="a"
            variant="default"
            href={`${BASE}/projects/${project.id}/audit/export`}
            download="audit.jsonl"
          >
            Export
          </Button>
        </div>
      </PageHead>
      <Card flush>
        {entries === undefined || !areNamesRead ? (
          <div style={{ padding: 20 }}>
            <Unread error={error} rows={6} />
          </div>
        ) : entries.length === 0 ? (
          <Empty icon={ScrollText} title="No entries">
            Each change, and each refused one, is listed here.
          </Empty>
        ) : (
          <Entries entries={entries} />
        )}
      </Card>
      {hasNextPage && (
        <Button
          variant="default"
          mt="md"
          loading={isFetchingNextPage}
          onClick={() => void fetchNextPage()}
        >
          Older
        </Button>
      )}
    </>
  );
}

const Entries = ({ entries }: { entries: readonly AuditEntry[] }) => (
  <Rows
    rows={entries}
    idOf={({ id }) => id}
    columns={[
      { title: 'When', show: ({ at }) => <Ago iso={at} /> },
      {
        title: 'What',
        show: ({ call, service_id: service }) => (
          <>
            {kindLabel(call)}
            {service !== undefined && (
              <div>
                <ServiceName id={service} />
              </div>
            )}
          </>
        ),
      },
      {
        title: 'Who',
        show: ({ public_key: key, address }) => (
          <>
            {key === null ? 'no key' : <KeyName publicKey={key} />}
            <div className={ui.muted}>{address}</div>
          </>
        ),
      },
      {
        title: 'Outcome',
        show: ({ outcome, code, count, last_at: lastAt }) => (
          <>
            <Pill tone={outcome === 'allowed' ? 'good' : 'bad'}>{outcome}</Pill>
            <div className={ui.muted}>{code ?? ''}</div>
            {count !== undefined && (
              <div className={ui.muted}>
                {count} times
                {lastAt !== undefined && (
                  <>
                    , last <Ago iso={lastAt} />
                  </>
                )}
              </div>
            )}
          </>
        ),
      },
      {
        title: 'Request',
        show: ({ request_id: request }) => (
          <CopyButton value={request} label="Copy the request id" />
        ),
      },
    ]}
  />
);
