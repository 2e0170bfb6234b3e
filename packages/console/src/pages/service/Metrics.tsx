/** The resource usage of the service, over time. Dragging over a chart zooms all charts. */
import { Button, SegmentedControl, useComputedColorScheme } from '@mantine/core';
import { keepPreviousData, useQueries, useQuery } from '@tanstack/react-query';
import type { Schemas } from '@howdah/client';
import { useEffect, useMemo, useState } from 'react';
import { seriesNamesQuery, seriesQuery, type SeriesRange } from '../../api.ts';
import { Card, Unread } from '../../components/ui.tsx';
import { bytes, duration } from '../../format.ts';
import { useMembers, useServiceId } from '../../live.ts';
import { useMe } from '../../session.ts';
import { Chart, type NodeLine } from './Chart.tsx';
import charts from './charts.module.css';
import type { Window, Zoom } from './plot.ts';
import classes from './service.module.css';

const HOUR_MS = 3_600_000;
const RANGES = { '1 h': 1, '6 h': 6, '24 h': 24, '7 d': 168, '30 d': 720 } as const;
type RangeName = keyof typeof RANGES;
const isRange = (name: string): name is RangeName => name in RANGES;
/** The number of points that a chart can show. */
const POINTS = 240;
const SAMPLE_SECONDS = 60;

const figure = (n: number): string => String(n < 10 ? Number(n.toPrecision(2)) : Math.round(n));

type Shown = { title: string; show: (value: number) => string };
const SERIES: Record<string, Shown> = {
  cpu_millis: { title: 'CPU', show: (millis) => `${figure(millis / 1000)} CPU` },
  memory_bytes: { title: 'Memory', show: bytes },
  storage_bytes: { title: 'Storage', show: bytes },
  connections: { title: 'Connections', show: figure },
  transactions_per_second: { title: 'Transactions per second', show: figure },
  lag_bytes: { title: 'Lag of standbys, in bytes', show: bytes },
  lag_seconds: { title: 'Lag of standbys, in time', show: (seconds) => duration(seconds * 1000) },
};
const seriesOf = (name: string): Shown =>
  SERIES[name] ?? { title: name.replaceAll('_', ' '), show: figure };

/** The colours of the nodes. */
const LINES = {
  light: ['#0f766e', '#b45309', '#1d4ed8'],
  dark: ['#2dd4bf', '#fbbf24', '#93c5fd'],
} as const;

export function Metrics() {
  const { project } = useMe();
  const id = useServiceId();
  const [rangeName, setRangeName] = useState<RangeName>('1 h');
  const [zoom, setZoom] = useState<Window | null>(null);
  const nowMs = useMinute();
  const { data: listed, error } = useQuery(seriesNamesQuery(project.id, id));
  // Series are listed under Tiger's names as well.
  const names = listed?.filter((name) => Object.hasOwn(SERIES, name));
  const { data: members } = useMembers();
  // Members are read often, for their lag; their roles change rarely.
  const roles = (members ?? []).map(({ node, role }) => `${role} ${node}`).join(',');
  const window = zoom ?? { fromMs: nowMs - RANGES[rangeName] * HOUR_MS, toMs: nowMs };
  const range: SeriesRange = { ...window, bucketSeconds: bucketOf(window.toMs - window.fromMs) };
  const series = useQueries({
    queries: (names ?? []).map((name) => ({
      ...seriesQuery(project.id, id, name, range),
      placeholderData: keepPreviousData,
    })),
  });
  // The series of a service mostly fail together: the page shows one error.
  const failed = series.find((one) => one.data === undefined && one.error !== null)?.error;
  return (
    <>
      <div className={`${classes.row} ${classes.between}`} style={{ marginBottom: 16 }}>
        <SegmentedControl
          aria-label="Time shown"
          value={rangeName}
          onChange={(name) => {
            if (isRange(name)) setRangeName(name);
            setZoom(null);
          }}
          data={Object.keys(RANGES)}
        />
        <div className={classes.row} style={{ gap: 8 }}>
          {zoom === null ? (
            <span className={classes.hint}>drag over a chart to zoom, or</span>
          ) : (
            <Button variant="default" size="xs" onClick={() => setZoom(null)}>
              Back to {rangeName}
            </Button>
          )}
          <Button variant="default" size="xs" onClick={() => setZoom(part(window, 0.25, 0.75))}>
            Closer
          </Button>
          <Button variant="default" size="xs" onClick={() => setZoom(part(window, -0.5, 0.5))}>
            Earlier
          </Button>
          <Button
            variant="default"
            size="xs"
            {...(window.toMs >= nowMs ? { disabled: true, title: 'the chart ends now' } : {})}
            onClick={() => setZoom(part(window, 0.5, 1.5))}
          >
            Later
          </Button>
        </div>
      </div>
      {names === undefined || failed != null ? (
        <Unread error={error ?? failed ?? null} rows={8} />
      ) : (
        <div className={charts.charts}>
          {names.map((name, index) => (
            <SeriesCard
              key={name}
              name={name}
              data={series[index]?.data}
              roles={roles}
              onZoom={setZoom}
            />
          ))}
        </div>
      )}
    </>
  );
}

/**
 * The window that begins and ends at these shares of another; at least as long as a few samples.
 */
function part({ fromMs, toMs }: Window, from: number, to: number): Window {
  const spanMs = Math.max(toMs - fromMs, 10 * SAMPLE_SECONDS * 1000);
  return { fromMs: fromMs + spanMs * from, toMs: fromMs + spanMs * to };
}

type Series = Schemas['Series'];

/** @param roles of the nodes: `standby 0,primary 1` */
function SeriesCard({
  name,
  data,
  roles,
  onZoom,
}: {
  name: string;
  data: readonly Series[] | undefined;
  roles: string;
  onZoom: Zoom;
}) {
  const theme = useComputedColorScheme();
  const { title, show } = seriesOf(name);
  const nodes = useMemo(
    () => linesOf(data ?? [], roles.split(','), LINES[theme], show),
    [data, roles, theme, show],
  );
  const [alone] = nodes;
  return (
    <Card title={title}>
      <div className={`${charts.latest} num`}>
        {nodes.length === 1
          ? alone?.last
          : nodes.map(({ name: node, last, line }) => (
              <span key={node} className={charts.latestOfNode}>
                <i style={{ background: line }} />
                {node} <b>{last}</b>
              </span>
            ))}
      </div>
      <div className={charts.chart}>
        {nodes.length === 0 && data !== undefined ? (
          <p className={charts.noFigures}>
            No measurements in this time. They are taken once a minute while the service runs.
          </p>
        ) : (
          <Chart title={title} nodes={nodes} show={show} onZoom={onZoom} />
        )}
      </div>
    </Card>
  );
}

/** The lines of the nodes that have measurements. */
function linesOf(
  series: readonly Series[],
  roles: readonly string[],
  colours: readonly string[],
  show: Shown['show'],
): NodeLine[] {
  return series.flatMap(({ labels, data: points }, index) => {
    const last = points.findLast(({ value }) => value !== null)?.value ?? null;
    const node = labels['node'] ?? '';
    const name = roles.find((role) => role.endsWith(` ${node}`)) ?? `node ${node}`;
    return last === null
      ? []
      : [
          {
            name,
            points,
            last: show(last),
            line: colours[index % colours.length] ?? 'currentColor',
          },
        ];
  });
}

/** The end of the last whole minute: new measurements come once a minute. */
function useMinute(): number {
  const minute = (): number => Math.ceil(Date.now() / 60_000) * 60_000;
  const [nowMs, setNowMs] = useState(minute);
  useEffect(() => {
    const timer = setInterval(() => setNowMs(minute()), 10_000);
    return () => clearInterval(timer);
  }, []);
  return nowMs;
}

function bucketOf(spanMs: number): number {
  return Math.max(
    SAMPLE_SECONDS,
    Math.ceil(spanMs / 1000 / POINTS / SAMPLE_SECONDS) * SAMPLE_SECONDS,
  );
}
