/** A chart over time. The pointer, or the arrow keys, show the time and the values of a point. */
import { useComputedColorScheme } from '@mantine/core';
import { useElementSize } from '@mantine/hooks';
import uPlot from 'uplot';
import type { Schemas } from '@howdah/client';
import { useEffect, useRef, useState } from 'react';
import { fullTime } from '../../format.ts';
import classes from './service.module.css';

export type Window = { fromMs: number; toMs: number };
export type Zoom = (window: Window) => void;

/** The line of a node. */
export type NodeLine = {
  name: string;
  points: Schemas['Series']['data'];
  last: string;
  line: string;
};

/** A chart of one series, with a line for each node. */
export function Chart({
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
  const current = useRef({ show, onZoom });
  current.current = { show, onZoom };
  const plot = useRef<uPlot | null>(null);
  const [index, setIndex] = useState<number | null>(null);
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
            // Ticks that round to the same text are shown once.
            values: (_plot, ticks) => {
              const texts = ticks.map((tick) => current.current.show(tick));
              return texts.map((text, index) => (texts.indexOf(text) === index ? text : ''));
            },
          },
        ],
        series: [{}, ...lines.split(' ').map((line, _index, all) => drawn(line, all.length === 1))],
        hooks: {
          setCursor: [(chart) => setIndex(pointed(chart))],
          setSelect: [
            (chart) => {
              const { left, width: wide } = chart.select;
              if (wide < 8) return;
              current.current.onZoom({
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

  const times = nodes[0]?.points ?? [];
  const pick = (to: number): void => {
    const chart = plot.current;
    const at = Math.min(Math.max(to, 0), times.length - 1);
    const time = times[at]?.time;
    if (chart === null || time === undefined) return;
    const left = chart.valToPos(Date.parse(time) / 1000, 'x');
    chart.setCursor({ left, top: 0 });
  };
  const hide = (): void => plot.current?.setCursor({ left: -10, top: -10 });
  const last = times.length - 1;
  const shown = Math.min(index ?? last, last);
  return (
    <div
      ref={ref}
      style={{ height: '100%', position: 'relative' }}
      role="slider"
      tabIndex={0}
      aria-label={`${title} over time`}
      aria-valuemin={0}
      aria-valuemax={Math.max(0, last)}
      aria-valuenow={Math.max(0, shown)}
      aria-valuetext={valuesAt(nodes, shown, show).join(', ')}
      onFocus={(event) => event.currentTarget.matches(':focus-visible') && pick(newest(nodes))}
      onBlur={hide}
      onKeyDown={(event) => {
        const to = indexOfKey(event.key, shown, last);
        if (event.key === 'Escape') hide();
        if (to === null) return;
        event.preventDefault();
        pick(to);
      }}
    >
      <div ref={place} />
      {index !== null && plot.current !== null && (
        <Readout chart={plot.current} lines={valuesAt(nodes, index, show)} width={width} />
      )}
    </div>
  );
}

/** The point below the cursor; null: the cursor is outside. */
function pointed({ cursor: { idx, left = -1 } }: uPlot): number | null {
  return idx === null || idx === undefined || left < 0 ? null : idx;
}

/** The last point that has a value. */
function newest(nodes: readonly NodeLine[]): number {
  return Math.max(
    0,
    ...nodes.map(({ points }) => points.findLastIndex(({ value }) => value !== null)),
  );
}

/** Where a key moves the cursor; null: it does not. */
function indexOfKey(key: string, index: number, last: number): number | null {
  switch (key) {
    case 'ArrowLeft':
      return index - 1;
    case 'ArrowRight':
      return index + 1;
    case 'PageUp':
      return index - 10;
    case 'PageDown':
      return index + 10;
    case 'Home':
      return 0;
    case 'End':
      return last;
    default:
      return null;
  }
}

/** The time of a point, and the value of each node at it. */
function valuesAt(
  nodes: readonly NodeLine[],
  index: number,
  show: (value: number) => string,
): string[] {
  const time = nodes[0]?.points[index]?.time;
  if (time === undefined) return ['no measurements'];
  return [
    fullTime(time),
    ...nodes.map(({ name, points }) => {
      const value = points[index]?.value ?? null;
      const text = value === null ? 'not measured' : show(value);
      return nodes.length === 1 ? text : `${name}: ${text}`;
    }),
  ];
}

/** Time and values beside the cursor, on the side that has room. */
function Readout({
  chart,
  lines: [time, ...values],
  width,
}: {
  chart: uPlot;
  lines: readonly string[];
  width: number;
}) {
  const left = (chart.cursor.left ?? 0) + chart.bbox.left / devicePixelRatio;
  const side = left > width / 2 ? { right: width - left + 10 } : { left: left + 10 };
  return (
    <div className={`${classes.readout} num`} style={side} aria-hidden>
      <span>{time}</span>
      {values.map((value) => (
        <b key={value}>{value}</b>
      ))}
    </div>
  );
}

/** @param alone whether it is the only line, which is filled below */
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
