/** The resource usage of the service, over time. Dragging over a chart zooms all charts. */
import { SHARED_CPU_MILLIS } from '@howdah/contract/sizes';
import { Button, SegmentedControl, useComputedColorScheme } from '@mantine/core';
import { keepPreviousData, useQueries, useQuery } from '@tanstack/react-query';
import type { Schemas } from '@howdah/client';
import { useEffect, useMemo, useState } from 'react';
import { seriesNamesQuery, seriesQuery, type SeriesRange } from '../../api.ts';
import { Card, Unread } from '../../components/ui.tsx';
import { bytes, cores, duration } from '../../format.ts';
import { useMembers, useServiceId, useThisService } from '../../live.ts';
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

type Show = (value: number) => string;
/** A series of a chart; the label and the words are its own where a chart has several. */
type Shown = { name: string; label?: string; show?: Show };
/** `show`: values of its axis in words; `hasGuarantee`: whether the guarantee is a line in it. */
type ChartOf = { title: string; show: Show; series: readonly Shown[]; hasGuarantee?: boolean };

const cpus: Show = (millis) => `${figure(millis / 1000)} CPU`;
const one = (name: string, title: string, show: Show): ChartOf => ({
  title,
  show,
  series: [{ name }],
});

const CHARTS: readonly ChartOf[] = [
  { ...one('cpu_millis', 'CPU', cpus), hasGuarantee: true },
  {
    title: 'Waiting',
    show: (millis) => figure(millis / 1000),
    series: [
      {
        name: 'cpu_wait_millis',
        label: 'for CPU',
        show: (millis) => `${figure(millis / 1000)} processes`,
      },
      {
        name: 'write_wait_millis',
        label: 'for the disk',
        show: (millis) => `${figure(millis / 10)} % of the time`,
      },
    ],
  },
  one('memory_bytes', 'Memory', bytes),
  one('storage_bytes', 'Storage', bytes),
  one('connections', 'Connections', figure),
  one('transactions_per_second', 'Transactions per second', figure),
  one('lag_bytes', 'Lag of standbys, in bytes', bytes),
  one('lag_seconds', 'Lag of standbys, in time', (seconds) => duration(seconds * 1000)),
];

/** The colours of the nodes, and of the series of each. */
const LINES = {
  light: ['#0f766e', '#b45309', '#1d4ed8', '#7e22ce', '#be123c', '#4d7c0f'],
  dark: ['#2dd4bf', '#fbbf24', '#93c5fd', '#d8b4fe', '#fda4af', '#bef264'],
} as const;

export function Metrics() {
  const { project } = useMe();
  const id = useServiceId();
  const [rangeName, setRangeName] = useState<RangeName>('1 h');
  const [zoom, setZoom] = useState<Window | null>(null);
  const nowMs = useMinute();
  const { data: listed, error } = useQuery(seriesNamesQuery(project.id, id));
  // Series are listed under Tiger's names as well.
  const shown =
    listed && CHARTS.filter(({ series: [first] }) => listed.includes(first?.name ?? ''));
  const names = (shown ?? []).flatMap(({ series: parts }) => parts.map(({ name }) => name));
  const { data: members } = useMembers();
  // Members are read often, for their lag; their roles change rarely.
  const roles = (members ?? []).map(({ node, role }) => `${role} ${node}`).join(',');
  const window = zoom ?? { fromMs: nowMs - RANGES[rangeName] * HOUR_MS, toMs: nowMs };
  const range: SeriesRange = { ...window, bucketSeconds: bucketOf(window.toMs - window.fromMs) };
  const series = useQueries({
    queries: names.map((name) => ({
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
      {shown === undefined || failed != null ? (
        <Unread error={error ?? failed ?? null} rows={8} />
      ) : (
        <div className={charts.charts}>
          {shown.map((chart) => (
            <ChartCard
              key={chart.title}
              chart={chart}
              data={chart.series.map(({ name }) => series[names.indexOf(name)]?.data)}
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
type Data = readonly Series[] | undefined;

/**
 * @param data of each of its series
 * @param roles of the nodes: `standby 0,primary 1`
 */
function ChartCard({
  chart: { title, show, series, hasGuarantee = false },
  data,
  roles,
  onZoom,
}: {
  chart: ChartOf;
  data: readonly Data[];
  roles: string;
  onZoom: Zoom;
}) {
  const theme = useComputedColorScheme();
  const service = useThisService();
  const guaranteed = service.resources[0]?.spec.cpu_millis ?? SHARED_CPU_MILLIS;
  const colours = LINES[theme];
  const lines = useMemo(
    () =>
      linesOf(series, data, roles.split(','), show).map((line, index) => ({
        ...line,
        line: colours[index % colours.length] ?? 'currentColor',
      })),
    // The list of the series is new each time, and what is in it is not.
    [series, ...data, roles, show, colours],
  );
  const [alone] = lines;
  const isRead = data.every((one) => one !== undefined);
  return (
    <Card title={title} {...(hasGuarantee ? { hint: <Guarantee millis={guaranteed} /> } : {})}>
      <div className={`${charts.latest} num`}>
        {lines.length === 1 && series.length === 1
          ? alone?.last
          : lines.map(({ name, last, line }) => (
              <span key={name} className={charts.latestOfNode}>
                <i style={{ background: line }} />
                {name} <b>{last}</b>
              </span>
            ))}
      </div>
      <div className={charts.chart}>
        {lines.length === 0 && isRead ? (
          <p className={charts.noFigures}>
            No measurements in this time. They are taken once a minute while the service runs.
          </p>
        ) : (
          <Chart
            title={title}
            nodes={lines}
            show={show}
            mark={hasGuarantee ? guaranteed : null}
            onZoom={onZoom}
          />
        )}
      </div>
    </Card>
  );
}

/** The meaning of the dashed line and of the tint above it. */
const Guarantee = ({ millis }: { millis: number }) => (
  <span className={charts.guarantee}>
    <i />
    beyond the guarantee of {cores(millis)}
  </span>
);

/** The lines of the nodes that have measurements, by the order of the series of a chart. */
function linesOf(
  series: readonly Shown[],
  data: readonly Data[],
  roles: readonly string[],
  show: Show,
): Omit<NodeLine, 'line'>[] {
  const nodes = new Set(data.flatMap((one) => one?.map(({ labels }) => labels['node']) ?? []));
  return series.flatMap(({ label, show: own = show }, index) =>
    (data[index] ?? []).flatMap(({ labels, data: points }) => {
      const last = points.findLast(({ value }) => value !== null)?.value ?? null;
      if (last === null) return [];
      const node = labels['node'] ?? '';
      const role = roles.find((one) => one.endsWith(` ${node}`)) ?? `node ${node}`;
      const name = label === undefined ? role : nodes.size === 1 ? label : `${role} ${label}`;
      return [{ name, points, last: own(last), show: own }];
    }),
  );
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
