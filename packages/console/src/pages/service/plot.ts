/** The options of uPlot for a chart over time. */
import type uPlot from 'uplot';

/** The part of the time axis that is shown. */
export type Window = { fromMs: number; toMs: number };
export type Zoom = (window: Window) => void;

type PlotSettings = {
  width: number;
  height: number;
  dark: boolean;
  /** The colour of each line. */
  lines: readonly string[];
  show: (value: number) => string;
  /** A value to which all of them are compared, above which they are beyond it; null: none. */
  mark: number | null;
  /** The point under the cursor; null: the cursor is outside. */
  onPoint: (index: number | null) => void;
  onZoom: Zoom;
};

/** Drags shorter than this are clicks. */
const MIN_DRAG_PX = 8;

export function plotOptions(settings: PlotSettings): uPlot.Options {
  const { width, height, lines, onPoint, onZoom } = settings;
  return {
    width,
    height,
    cursor: { y: false, sync: { key: 'howdah' }, drag: { x: true, y: false, setScale: false } },
    legend: { show: false },
    scales: {
      y: { range: (_plot, _min, max) => [0, topOf(max, settings.mark)] },
    },
    axes: axes(settings),
    series: [{}, ...lines.map((line) => drawn(line, lines.length === 1))],
    hooks: {
      drawAxes: [(chart) => drawMark(chart, settings)],
      setCursor: [(chart) => onPoint(pointed(chart))],
      setSelect: [
        (chart) => {
          const { left, width: wide } = chart.select;
          if (wide < MIN_DRAG_PX) return;
          onZoom({
            fromMs: chart.posToVal(left, 'x') * 1000,
            toMs: chart.posToVal(left + wide, 'x') * 1000,
          });
          chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
    },
  };
}

/** A mark so many times above all values is not shown: they would be a line on the ground. */
const FAR = 10;

/** The highest value of the axis. */
export function topOf(max: number, mark: number | null): number {
  if (!Number.isFinite(max) || max <= 0) return (mark ?? 1) * 1.15;
  return Math.max(max, mark !== null && mark <= max * FAR ? mark : 0) * 1.15;
}

/** A dashed line at the mark, and a tint above it. */
function drawMark(chart: uPlot, { mark, dark }: PlotSettings): void {
  const top = chart.scales['y']?.max ?? 0;
  if (mark === null || mark >= top) return;
  const { ctx, bbox } = chart;
  const y = Math.round(chart.valToPos(mark, 'y', true));
  ctx.save();
  ctx.fillStyle = dark ? '#fbbf2416' : '#d9770612';
  ctx.fillRect(bbox.left, bbox.top, bbox.width, y - bbox.top);
  ctx.strokeStyle = dark ? '#fbbf24' : '#b45309';
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.restore();
}

/** The axis of time, and that of the values. */
function axes({ dark, show }: PlotSettings): uPlot.Axis[] {
  const common = {
    stroke: dark ? '#9fb0b5' : '#55656a',
    ticks: { show: false },
    font: '11px system-ui, sans-serif',
  };
  return [
    {
      ...common,
      grid: { show: false },
      size: 26,
      values: (_plot, ticks) =>
        ticks.map((tick, index) => axisTime(tick, (ticks[1] ?? 0) - (ticks[0] ?? 0), index === 0)),
    },
    {
      ...common,
      grid: { stroke: dark ? '#29353b' : '#e9eeee', width: 1 },
      size: 76,
      // Ticks that round to the same text are shown once.
      values: (_plot, ticks) => {
        const texts = ticks.map(show);
        return texts.map((text, index) => (texts.indexOf(text) === index ? text : ''));
      },
    },
  ];
}

/** The point below the cursor; null: the cursor is outside. */
function pointed({ cursor: { idx, left = -1 } }: uPlot): number | null {
  return idx === null || idx === undefined || left < 0 ? null : idx;
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
