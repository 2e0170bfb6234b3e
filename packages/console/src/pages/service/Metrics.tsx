/** What the service uses, over time. Drag over a chart to zoom all of them. */
import { Button, SegmentedControl, useComputedColorScheme } from '@mantine/core';
import { useElementSize } from '@mantine/hooks';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import uPlot from 'uplot';
import type { Schemas } from '@howdah/client';
import { useEffect, useMemo, useRef, useState } from 'react';
import { seriesNamesQuery, seriesQuery, type SeriesRange } from '../../api.ts';
import { Card, ErrorNotice, Waiting } from '../../components/ui.tsx';
import { bytes, duration } from '../../format.ts';
import { useMembers, useServiceId } from '../../live.ts';
import { useMe } from '../../session.ts';
import classes from './service.module.css';

const HOUR_MS = 3_600_000;
const RANGES = { '1 h': 1, '6 h': 6, '24 h': 24, '7 d': 168, '30 d': 720 } as const;
type RangeName = keyof typeof RANGES;
const isRange = (name: string): name is RangeName => name in RANGES;
/** About as many points as a chart has pixels to show. */
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
  const { data: names, error } = useQuery(seriesNamesQuery(project.id, id));
  const { data: members } = useMembers();
  // Members are looked at all the time, for their lag: who is what changes seldom.
  const roles = (members ?? []).map(({ node, role }) => `${role} ${node}`).join(',');
  const window = zoom ?? { fromMs: nowMs - RANGES[rangeName] * HOUR_MS, toMs: nowMs };
  const range: SeriesRange = { ...window, bucketSeconds: bucketOf(window.toMs - window.fromMs) };
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
            disabled={window.toMs >= nowMs}
            onClick={() => setZoom(part(window, 0.5, 1.5))}
          >
            Later
          </Button>
        </div>
      </div>
      {names === undefined ? (
        error === null ? (
          <Waiting rows={8} />
        ) : (
          <ErrorNotice error={error} />
        )
      ) : (
        <div className={classes.charts}>
          {names.map((name) => (
            <SeriesCard key={name} name={name} range={range} roles={roles} onZoom={setZoom} />
          ))}
        </div>
      )}
    </>
  );
}

type Window = { fromMs: number; toMs: number };
type Zoom = (window: Window) => void;

/** The window that begins and ends at these shares of another; at least as long as a few samples. */
function part({ fromMs, toMs }: Window, from: number, to: number): Window {
  const spanMs = Math.max(toMs - fromMs, 10 * SAMPLE_SECONDS * 1000);
  return { fromMs: fromMs + spanMs * from, toMs: fromMs + spanMs * to };
}

/** @param roles of the nodes: `standby 0,primary 1` */
function SeriesCard({
  name,
  range,
  roles,
  onZoom,
}: {
  name: string;
  range: SeriesRange;
  roles: string;
  onZoom: Zoom;
}) {
  const { project } = useMe();
  const id = useServiceId();
  const { data, error } = useQuery({
    ...seriesQuery(project.id, id, name, range),
    placeholderData: keepPreviousData,
  });
  const theme = useComputedColorScheme();
  const { title, show } = seriesOf(name);
  const nodes = useMemo(
    () => linesOf(data ?? [], roles.split(','), LINES[theme], show),
    [data, roles, theme, show],
  );
  const [alone] = nodes;
  return (
    <Card title={title}>
      <ErrorNotice error={error} />
      <div className={`${classes.latest} num`}>
        {nodes.length === 1
          ? alone?.last
          : nodes.map(({ name: node, last, line }) => (
              <span key={node} className={classes.latestOfNode}>
                <i style={{ background: line }} />
                {node} <b>{last}</b>
              </span>
            ))}
      </div>
      <div className={classes.chart}>
        {nodes.length === 0 && data !== undefined ? (
          <p className={classes.noFigures}>
            No figures in this time. They are taken once a minute while the service runs.
          </p>
        ) : (
          <Chart title={title} nodes={nodes} show={show} onZoom={onZoom} />
        )}
      </div>
    </Card>
  );
}

type Series = Schemas['Series'];
type NodeLine = { name: string; points: Series['data']; last: string; line: string };

/** The lines of those nodes of which there are figures. */
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

function Chart({
  title,
  nodes,
  show,
  onZoom,
}: {
  title: string;
  nodes: readonly NodeLine[];
  show: (value: number) => string;
  onZoom: Zoom;
}) {
  const { ref, width, height } = useElementSize();
  const place = useRef<HTMLDivElement>(null);
  const dark = useComputedColorScheme() === 'dark';
  const hands = useRef({ show, onZoom });
  hands.current = { show, onZoom };
  const plot = useRef<uPlot | null>(null);
  const lines = nodes.map(({ line }) => line).join(' ');

  useEffect(() => {
    if (place.current === null || width === 0) return undefined;
    const ink = dark ? '#9fb0b5' : '#55656a';
    const font = '11px system-ui, sans-serif';
    const made = new uPlot(
      {
        width,
        height,
        cursor: { y: false, sync: { key: 'howdah' }, drag: { x: true, y: false, setScale: false } },
        legend: { show: false },
        scales: {
          y: { range: (_plot, _min, max) => [0, Number.isFinite(max) && max > 0 ? max * 1.15 : 1] },
        },
        axes: [
          {
            stroke: ink,
            grid: { show: false },
            ticks: { show: false },
            font,
            size: 26,
            values: (_plot, ticks) =>
              ticks.map((tick, index) =>
                axisTime(tick, (ticks[1] ?? 0) - (ticks[0] ?? 0), index === 0),
              ),
          },
          {
            stroke: ink,
            grid: { stroke: dark ? '#29353b' : '#e9eeee', width: 1 },
            ticks: { show: false },
            font,
            size: 76,
            // What rounds to the same is said once.
            values: (_plot, ticks) => {
              const said = ticks.map((tick) => hands.current.show(tick));
              return said.map((text, index) => (said.indexOf(text) === index ? text : ''));
            },
          },
        ],
        series: [{}, ...lines.split(' ').map((line, _index, all) => drawn(line, all.length === 1))],
        hooks: {
          setSelect: [
            (chart) => {
              const { left, width: wide } = chart.select;
              if (wide < 8) return;
              hands.current.onZoom({
                fromMs: chart.posToVal(left, 'x') * 1000,
                toMs: chart.posToVal(left + wide, 'x') * 1000,
              });
              chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            },
          ],
        },
      },
      undefined,
      place.current,
    );
    plot.current = made;
    return () => {
      plot.current = null;
      made.destroy();
    };
  }, [width, height, dark, lines]);

  // Every node has a point for every bucket.
  useEffect(() => {
    const times = nodes[0]?.points.map(({ time }) => Date.parse(time) / 1000) ?? [];
    plot.current?.setData([times, ...nodes.map(({ points }) => points.map(({ value }) => value))]);
  }, [nodes, width, height, dark, lines]);

  const said = nodes.map(({ name, last }) => `${name} ${last}`).join(', ');
  return (
    <div
      ref={ref}
      style={{ height: '100%' }}
      role="img"
      aria-label={`${title} over time; now ${said}`}
    >
      <div ref={place} />
    </div>
  );
}

/** @param alone nothing else is drawn, so that what is below it can be filled */
const drawn = (line: string, alone: boolean): uPlot.Series => ({
  stroke: line,
  width: 1.75,
  points: { size: 5, fill: line },
  ...(alone ? { fill: `${line}1c` } : {}),
});

const hours = new Intl.DateTimeFormat(undefined, { timeStyle: 'short' });
const days = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric' });

/** A mark of the time axis, as precise as the marks are apart. */
function axisTime(seconds: number, apartSeconds: number, first: boolean): string {
  const moment = new Date(seconds * 1000);
  const midnight = moment.getHours() === 0 && moment.getMinutes() === 0;
  return apartSeconds >= 86_400 || (midnight && !first)
    ? days.format(moment)
    : hours.format(moment);
}

/** The end of the last whole minute, which is how often there is something new. */
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
