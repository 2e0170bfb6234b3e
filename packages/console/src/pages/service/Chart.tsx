/** A chart over time. The pointer, or the arrow keys, show the time and the values of a point. */
import { useComputedColorScheme } from '@mantine/core';
import { useElementSize } from '@mantine/hooks';
import uPlot from 'uplot';
import type { Schemas } from '@howdah/client';
import { useEffect, useRef, useState } from 'react';
import { fullTime } from '../../format.ts';
import { plotOptions, type Zoom } from './plot.ts';
import charts from './charts.module.css';

/** The line of a node. */
export type NodeLine = {
  name: string;
  points: Schemas['Series']['data'];
  last: string;
  line: string;
  /** The node's values in words, where lines of a chart have different units. */
  show?: (value: number) => string;
};

/** A chart with a line for each node, or for each series of each node. */
export function Chart({
  title,
  nodes,
  show,
  mark,
  onZoom,
}: {
  title: string;
  nodes: readonly NodeLine[];
  show: (value: number) => string;
  mark: number | null;
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
    const made = new uPlot(
      plotOptions({
        width,
        height,
        dark,
        lines: lines.split(' '),
        show: (value) => current.current.show(value),
        mark,
        onPoint: setIndex,
        onZoom: (window) => current.current.onZoom(window),
      }),
      undefined,
      place.current,
    );
    plot.current = made;
    return () => {
      plot.current = null;
      made.destroy();
    };
  }, [width, height, dark, lines, mark]);

  // Every node has a point for every bucket.
  useEffect(() => {
    const times = nodes[0]?.points.map(({ time }) => Date.parse(time) / 1000) ?? [];
    plot.current?.setData([times, ...nodes.map(({ points }) => points.map(({ value }) => value))]);
  }, [nodes, width, height, dark, lines, mark]);

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
    ...nodes.map(({ name, points, show: own = show }) => {
      const value = points[index]?.value ?? null;
      const text = value === null ? 'not measured' : own(value);
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
    <div className={`${charts.readout} num`} style={side} aria-hidden>
      <span>{time}</span>
      {values.map((value) => (
        <b key={value}>{value}</b>
      ))}
    </div>
  );
}
