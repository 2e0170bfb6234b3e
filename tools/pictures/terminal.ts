/** A recorded session of a terminal as a picture in SVG, which shows it line by line. */

/** `output` is what the command printed, `ms` how long it took. */
export type Recorded = Readonly<{ line: string; output: string; ms: number }>;

const CHARACTER_PX = 8.4;
const LINE_PX = 19;
const MARGIN_PX = 16;
const COLUMNS = 110;
/** A reader needs a moment for each line. */
const PAUSE_S = 1.2;

type Drawn = Readonly<{ text: string; atS: number; isCommand: boolean }>;

/** The picture moves once, and then shows all lines. */
export function drawTerminal(recorded: readonly Recorded[]): string {
  let atS = 0.5;
  const lines: Drawn[] = [];
  for (const { line, output, ms } of recorded) {
    lines.push({ text: `$ ${line}`, atS, isCommand: true });
    atS += ms / 1000;
    for (const text of output.trimEnd().split('\n'))
      lines.push({ text: text.slice(0, COLUMNS), atS, isCommand: false });
    atS += PAUSE_S;
  }
  const width = Math.ceil(COLUMNS * CHARACTER_PX + 2 * MARGIN_PX);
  const height = lines.length * LINE_PX + 2 * MARGIN_PX;
  const rows = lines.map(
    ({ text, atS: second, isCommand }, index) =>
      `<text x="${MARGIN_PX}" y="${MARGIN_PX + (index + 0.8) * LINE_PX}"` +
      `${isCommand ? ' class="command"' : ''} style="animation-delay:${second.toFixed(1)}s">` +
      `${escaped(text)}</text>`,
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img">
<title>Commands of Howdah and their output</title>
<style>
text { font: 14px ui-monospace, Menlo, Consolas, monospace; fill: #d5d9e0; white-space: pre;
  opacity: 0; animation: show 0s forwards; }
.command { fill: #ffffff; font-weight: bold; }
@keyframes show { to { opacity: 1; } }
@media (prefers-reduced-motion: reduce) { text { animation-delay: 0s !important; } }
</style>
<rect width="${width}" height="${height}" rx="8" fill="#1b1e24"/>
${rows.join('\n')}
</svg>
`;
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
