/** A small time chart: panels one below the other over one time axis, with shaded spans. SVG, readable on light and dark. */

export interface Point {
  /** Minutes. */
  readonly x: number;
  readonly y: number;
}

/** One of the eight colours of the style sheet, `s0` to `s7`. */
type Colour = `s${0 | 1 | 2 | 3 | 4 | 5 | 6 | 7}`;

export interface Series {
  readonly name: string;
  readonly colour: Colour;
  /** Lines, each drawn by itself, so that there is a gap between two; or bars from the axis up, stacked on those before. */
  readonly lines?: readonly (readonly Point[])[];
  readonly bars?: readonly Point[];
  readonly isDashed?: boolean;
}

export interface Panel {
  /** With the unit. */
  readonly title: string;
  readonly series: readonly Series[];
  /** Logarithmic from this value on, at least; else linear from 0. */
  readonly logFrom?: number;
  readonly label?: (value: number) => string;
}

interface Span {
  readonly name: string;
  /** Minutes. */
  readonly from: number;
  readonly to: number;
}

export interface Chart {
  readonly title: string;
  readonly minutes: number;
  /** Width of a bar, in minutes. */
  readonly barMinutes: number;
  readonly spans: readonly Span[];
  readonly panels: readonly Panel[];
}

const WIDTH = 1_000;
const LEFT = 70;
const RIGHT = 20;
const PLOT = WIDTH - LEFT - RIGHT;
/** Title, two rows of names of spans, heading of the first panel. */
const TOP = 104;
const NAMES_END = 74;
const PANEL = 140;
const GAP = 52;
const BOTTOM = 44;
/** What is shorter is drawn as wide as this, so that it is seen. */
const MIN_SPAN_PX = 2;

const STYLE = `
svg { --bg: #ffffff; --text: #1f2328; --muted: #59636e; --grid: #d8dee4; --span: #9a6700;
  --s0: #0969da; --s1: #1a7f37; --s2: #8250df; --s3: #bc4c00; --s4: #cf222e; --s5: #0550ae; --s6: #116329; --s7: #6639ba; }
@media (prefers-color-scheme: dark) {
  svg { --bg: #0d1117; --text: #e6edf3; --muted: #9198a1; --grid: #30363d; --span: #d29922;
    --s0: #4493f8; --s1: #3fb950; --s2: #ab7df8; --s3: #f0883e; --s4: #ff7b72; --s5: #a5d6ff; --s6: #7ee787; --s7: #d2a8ff; }
}
text { font: 12px system-ui, sans-serif; fill: var(--text); }
.title { font-size: 16px; font-weight: 600; } .heading { font-size: 13px; font-weight: 600; }
.muted { fill: var(--muted); } .span-name { font-size: 11px; fill: var(--muted); }
.grid { stroke: var(--grid); stroke-width: 1; } .span { fill: var(--span); fill-opacity: .22; }
.leader { stroke: var(--span); stroke-width: 1; stroke-opacity: .6; }
.line { fill: none; stroke-width: 1.4; stroke-linejoin: round; } .dashed { stroke-dasharray: 4 3; }
${[0, 1, 2, 3, 4, 5, 6, 7].map(at => `.s${at}.line { stroke: var(--s${at}); } .s${at}.bar { fill: var(--s${at}); }`).join('\n')}`;

const escape = (text: string) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
const round = (value: number) => Number(value.toFixed(1));

export function drawChart(chart: Chart): string {
  const height = TOP + chart.panels.length * (PANEL + GAP) - GAP + BOTTOM;
  const toX = (minutes: number) => round(LEFT + (PLOT * minutes) / chart.minutes);
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-label="${escape(chart.title)}">`,
    `<style>${STYLE}</style><rect width="${WIDTH}" height="${height}" fill="var(--bg)"/>`,
    `<text class="title" x="${LEFT}" y="24">${escape(chart.title)}</text>`,
    ...chart.spans.flatMap((span, at) => drawSpan(span, at, toX, height)),
    ...chart.panels.flatMap((panel, at) => drawPanel(panel, TOP + at * (PANEL + GAP), toX, chart.barMinutes)),
    ...timeAxis(chart.minutes, toX, height - BOTTOM),
    '</svg>',
  ];
  return `${parts.join('\n')}\n`;
}

type ToX = (minutes: number) => number;

function drawSpan({ name, from, to }: Span, at: number, toX: ToX, height: number): string[] {
  const x = toX(from);
  const width = Math.max(MIN_SPAN_PX, round(toX(to) - x));
  // In two rows by turns: neighbours' names would run into each other.
  const y = 50 + (at % 2) * 16;
  return [
    `<rect class="span" x="${x}" y="${NAMES_END}" width="${width}" height="${height - BOTTOM - NAMES_END}"/>`,
    `<path class="leader" d="M${x} ${y - 9}V${NAMES_END}"/>`,
    `<text class="span-name" x="${x + 4}" y="${y}">${escape(name)}</text>`,
  ];
}

function drawPanel(panel: Panel, top: number, toX: ToX, barMinutes: number): string[] {
  const scale = panel.logFrom === undefined ? linear(panel.series) : logarithmic(panel.series, panel.logFrom);
  const toY = (value: number) => round(top + PANEL * (1 - scale.share(value)));
  const label = panel.label ?? String;
  return [
    `<text class="heading" x="${LEFT}" y="${top - 8}">${escape(panel.title)}</text>`,
    ...legend(panel.series, top - 8),
    ...scale.ticks.flatMap(tick => [
      `<path class="grid" d="M${LEFT} ${toY(tick)}h${PLOT}"/>`,
      `<text class="muted" x="${LEFT - 8}" y="${toY(tick) + 4}" text-anchor="end">${escape(label(tick))}</text>`,
    ]),
    ...stackedBars(panel.series, toX, toY, barMinutes),
    ...panel.series.flatMap(({ lines = [], colour, isDashed }) =>
      lines
        .filter(line => line.length > 0)
        .map(line => {
          const path = line.map(({ x, y }) => `${toX(x)} ${toY(y)}`).join('L');
          return `<path class="line ${colour}${isDashed === true ? ' dashed' : ''}" d="M${path}"/>`;
        }),
    ),
  ];
}

/** Right-aligned, in the row of the heading. */
function legend(series: readonly Series[], y: number): string[] {
  const SWATCH = 22;
  const widths = series.map(({ name }) => SWATCH + name.length * 6.8 + 16);
  let x = WIDTH - RIGHT - widths.reduce((sum, width) => sum + width, 0);
  return series.flatMap(({ name, colour, bars, isDashed }, at) => {
    const from = round(x);
    x += widths[at] ?? 0;
    const swatch = bars
      ? `<rect class="bar ${colour}" x="${from}" y="${y - 9}" width="16" height="9"/>`
      : `<path class="line ${colour}${isDashed === true ? ' dashed' : ''}" d="M${from} ${y - 4}h16"/>`;
    return [swatch, `<text class="muted" x="${from + SWATCH}" y="${y}">${escape(name)}</text>`];
  });
}

function stackedBars(series: readonly Series[], toX: ToX, toY: ToX, barMinutes: number): string[] {
  const heights = new Map<number, number>();
  return series.flatMap(({ bars = [], colour }) =>
    bars
      .filter(({ y }) => y > 0)
      .map(({ x, y }) => {
        const from = heights.get(x) ?? 0;
        heights.set(x, from + y);
        const width = Math.max(1, round(toX(x + barMinutes) - toX(x)));
        const top = toY(from + y);
        return `<rect class="bar ${colour}" x="${toX(x)}" y="${top}" width="${width}" height="${Math.max(1, round(toY(from) - top))}"/>`;
      }),
  );
}

interface Scale {
  readonly ticks: readonly number[];
  /** 0 at the bottom, 1 at the top. */
  readonly share: (value: number) => number;
}

function valuesOf(series: readonly Series[]): number[] {
  const sums = new Map<number, number>();
  for (const { x, y } of series.flatMap(({ bars = [] }) => bars)) sums.set(x, (sums.get(x) ?? 0) + y);
  return [...sums.values(), ...series.flatMap(({ lines = [] }) => lines.flat().map(({ y }) => y))];
}

function linear(series: readonly Series[]): Scale {
  const step = niceStep(Math.max(1, ...valuesOf(series)) / 4);
  const count = Math.ceil(Math.max(1, ...valuesOf(series)) / step);
  return {
    ticks: Array.from({ length: count + 1 }, (_, at) => at * step),
    share: value => value / (count * step),
  };
}

function logarithmic(series: readonly Series[], from: number): Scale {
  const decades = Math.max(1, Math.ceil(Math.log10(Math.max(...valuesOf(series), from * 10) / from)));
  return {
    ticks: Array.from({ length: decades + 1 }, (_, at) => from * 10 ** at),
    share: value => Math.log10(Math.max(value, from) / from) / decades,
  };
}

function niceStep(atLeast: number): number {
  const power = 10 ** Math.floor(Math.log10(atLeast));
  return ([1, 2, 5, 10].find(factor => factor * power >= atLeast) ?? 10) * power;
}

function timeAxis(minutes: number, toX: ToX, y: number): string[] {
  const step = niceStep(minutes / 10);
  const ticks = Array.from({ length: Math.floor(minutes / step + 1e-9) + 1 }, (_, at) => at * step);
  return [
    ...ticks.map(tick => {
      const label = Number(tick.toFixed(2));
      return `<text class="muted" x="${toX(tick)}" y="${y + 18}" text-anchor="middle">${label}</text>`;
    }),
    `<text class="muted" x="${LEFT + PLOT / 2}" y="${y + 36}" text-anchor="middle">minutes</text>`,
  ];
}
