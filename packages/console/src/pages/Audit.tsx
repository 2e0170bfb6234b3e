import { Button, NativeSelect } from '@mantine/core';
import { useInfiniteQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { ScrollText } from 'lucide-react';
import { useState } from 'react';
import { BASE } from '../api.ts';
import { readAudit, type AuditEntry, type AuditFilter } from '../api-project.ts';
import { Rows } from '../components/Rows.tsx';
import {
  Ago,
  Card,
  CopyButton,
  Empty,
  ErrorNotice,
  PageHead,
  Pill,
  Waiting,
} from '../components/ui.tsx';
import { useMe } from '../session.ts';
import { kindLabel } from '../status.ts';
import ui from './project.module.css';

const isOutcome = (value: string): value is 'allowed' | 'refused' =>
  value === 'allowed' || value === 'refused';

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
  const entries = data?.pages.flatMap((page) => page.entries);
  return (
    <>
      <PageHead
        title="Audit log"
        about="Every call that was to change something: who, when, from where, and what became of it."
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
        {entries === undefined ? (
          <div style={{ padding: 20 }}>
            {error === null ? <Waiting rows={6} /> : <ErrorNotice error={error} />}
          </div>
        ) : entries.length === 0 ? (
          <Empty icon={ScrollText} title="Nothing yet">
            The first change, or the first attempt at one, will stand here.
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
                <Link
                  to="/services/$id/operations"
                  params={{ id: service }}
                  className={`mono ${ui.link}`}
                >
                  {service}
                </Link>
              </div>
            )}
          </>
        ),
      },
      {
        title: 'Who',
        show: ({ public_key: key, address }) => (
          <>
            <span className="mono">{key ?? 'nobody'}</span>
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
