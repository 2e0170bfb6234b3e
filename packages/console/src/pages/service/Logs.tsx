/** The server log, newest last. It follows new lines while it is scrolled to the end. */
import { Chip, NativeSelect, Switch, TextInput } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { keepPreviousData, useInfiniteQuery } from '@tanstack/react-query';
import { ScrollText, Search } from 'lucide-react';
import { useLayoutEffect, useRef, useState } from 'react';
import { readLogs, type LogEntry } from '../../api.ts';
import { Card, Empty, LinkButton, Unread } from '../../components/ui.tsx';
import { clockTime, fullTime } from '../../format.ts';
import { useMembers, useServiceId } from '../../live.ts';
import { useMe } from '../../session.ts';
import logs from './logs.module.css';
import classes from './service.module.css';

/** The severities of PostgreSQL in each group. */
const SEVERITIES = {
  Errors: ['ERROR', 'FATAL', 'PANIC'],
  Warnings: ['WARNING'],
  Log: ['LOG', 'NOTICE', 'INFO'],
} as const;
type SeverityName = keyof typeof SEVERITIES;
const isSeverity = (name: string): name is SeverityName => name in SEVERITIES;
const FOLLOW_MS = 1500;

export function Logs() {
  const { project } = useMe();
  const id = useServiceId();
  const { data: members } = useMembers();
  const [follow, setFollow] = useState(true);
  const [node, setNode] = useState<string | null>(null);
  const [names, setNames] = useState<string[]>([]);
  const [text, setText] = useState('');
  const [search] = useDebouncedValue(text.trim(), 250);
  const severities = names.flatMap((name) => (isSeverity(name) ? [...SEVERITIES[name]] : []));
  const filter = { search, severities, ...(node === null ? {} : { node: Number(node) }) };
  const { data, error, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery({
    queryKey: ['service', id, 'logs', filter],
    queryFn: ({ pageParam, signal }) =>
      readLogs(project.id, id, filter, pageParam === '' ? {} : { cursor: pageParam }, signal),
    initialPageParam: '',
    getNextPageParam: ({ last_cursor: cursor }) => cursor,
    placeholderData: keepPreviousData,
    // Once older pages are shown, the log stops following.
    refetchInterval: ({ state }) =>
      follow && (state.data?.pages.length ?? 1) === 1 ? FOLLOW_MS : false,
  });
  const entries = data?.pages.flatMap(({ entries: page }) => page).toReversed();
  return (
    <>
      <div className={logs.logBar}>
        <TextInput
          type="search"
          aria-label="Search the log"
          placeholder="Search the log"
          leftSection={<Search size={16} aria-hidden />}
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
          style={{ flex: '1 1 220px' }}
        />
        {members !== undefined && members.length > 1 && (
          <NativeSelect
            aria-label="Server"
            value={node ?? ''}
            onChange={({ currentTarget: { value } }) => setNode(value === '' ? null : value)}
            data={[
              { value: '', label: 'The primary' },
              ...members.map((member) => ({
                value: String(member.node),
                label: `Node ${member.node} (${member.role})`,
              })),
            ]}
          />
        )}
        <Chip.Group multiple value={names} onChange={setNames}>
          <div className={classes.row} style={{ gap: 6 }} role="group" aria-label="Severity">
            {Object.keys(SEVERITIES).map((name) => (
              <Chip key={name} value={name} size="sm" variant="outline">
                {name}
              </Chip>
            ))}
          </div>
        </Chip.Group>
        <Switch
          checked={follow}
          onChange={(event) => setFollow(event.currentTarget.checked)}
          label="Follow"
        />
      </div>
      <Card flush>
        {entries === undefined ? (
          <div style={{ padding: 20 }}>
            <Unread error={error} rows={10} height={14} />
          </div>
        ) : entries.length === 0 ? (
          <Empty
            icon={ScrollText}
            title={
              search === '' && severities.length === 0 ? 'The log is empty' : 'No line matches'
            }
          >
            {search === '' && severities.length === 0
              ? 'Lines appear here as PostgreSQL writes them.'
              : 'The search covers the whole log that is kept, in upper and lower case.'}
          </Empty>
        ) : (
          <Lines
            entries={entries}
            follow={follow}
            older={
              hasNextPage && (
                <div style={{ padding: '4px 18px 10px' }}>
                  <LinkButton onClick={() => void fetchNextPage()}>
                    {isFetchingNextPage ? 'Reading…' : 'Older lines'}
                  </LinkButton>
                </div>
              )
            }
          />
        )}
      </Card>
    </>
  );
}

function Lines({
  entries,
  follow,
  older,
}: {
  entries: readonly LogEntry[];
  follow: boolean;
  older: React.ReactNode;
}) {
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  const newest = entries.at(-1);
  useLayoutEffect(() => {
    if (follow && atEnd.current) box.current?.scrollTo({ top: box.current.scrollHeight });
  }, [follow, newest?.timestamp, newest?.message]);
  return (
    <div
      ref={box}
      className={logs.logs}
      tabIndex={0}
      role="log"
      aria-label="Log"
      aria-live="off"
      onScroll={({ currentTarget: at }) => {
        atEnd.current = at.scrollHeight - at.scrollTop - at.clientHeight < 40;
      }}
    >
      {older}
      {entries.map(({ timestamp, severity, message }, index) => (
        <div
          key={`${timestamp} ${entries.length - index}`}
          className={logs.log}
          data-tone={toneOf(severity)}
        >
          <time dateTime={timestamp} title={fullTime(timestamp)} className="num">
            {clockTime(timestamp)}
          </time>
          <span className={logs.severity}>{severity}</span>
          <span>{message}</span>
        </div>
      ))}
    </div>
  );
}

function toneOf(severity: string): 'bad' | 'warn' | 'none' {
  if (SEVERITIES.Errors.some((name) => name === severity)) return 'bad';
  return severity === 'WARNING' ? 'warn' : 'none';
}
