import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { html } from './lib.js';
import { number, short } from './words.js';

const HEIGHT = 180;
const FONT = '12px system-ui, sans-serif';
/** Pixels between two labels. */
const LABEL_SPACE = 72;
/** Steps between the lines of whole numbers: 1, 2, 5, 10, … */
const WHOLE = Array.from({ length: 10 }, (_step, power) => [1, 2, 5].map(step => step * 10 ** power)).flat();

/**
 * Columns of one colour. `color` is the name of a custom property of the style sheet.
 * @typedef {{ label: string, color: string, values: readonly number[] }} Series
 */

/**
 * Columns side by side, one for each label. `summary` says in words what they show.
 * @param {{ summary: string, what: string, labels: readonly string[], series: readonly Series[] }} props what: what the labels name
 */
export default function Plot({ summary, what, labels, series }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const shape = JSON.stringify([labels, series.map(one => one.label)]);
  const plot = useRef(/** @type {uPlot | undefined} */ (undefined));
  const data = /** @type {uPlot.AlignedData} */ (
    /** @type {unknown} */ ([labels.map((_label, at) => at), ...series.map(one => one.values)])
  );
  useEffect(() => {
    const place = box.current;
    if (!place) return undefined;
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(optionsOf(place, { what, labels, series }), data, place);
    };
    draw();
    const scheme = matchMedia('(prefers-color-scheme: dark)');
    scheme.addEventListener('change', draw);
    const sizes = new ResizeObserver(() =>
      plot.current?.setSize({ width: place.clientWidth, height: HEIGHT }),
    );
    sizes.observe(place);
    return () => {
      scheme.removeEventListener('change', draw);
      sizes.disconnect();
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data), [JSON.stringify(data)]);
  return html`<div class="plot" role="img" aria-label=${summary} ref=${box}></div>`;
}

/**
 * @param {HTMLElement} place
 * @param {{ what: string, labels: readonly string[], series: readonly Series[] }} shown
 * @returns {uPlot.Options}
 */
function optionsOf(place, { what, labels, series }) {
  const style = getComputedStyle(place);
  const color = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`);
  const axis = {
    stroke: color('quiet'),
    font: FONT,
    ticks: { show: false },
    grid: { stroke: color('soft'), width: 1 },
  };
  const nameOf = (/** @type {number} */ at) => labels[at] ?? '';
  return {
    width: place.clientWidth,
    height: HEIGHT,
    padding: [8, 8, 0, 0],
    cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
    scales: {
      x: { time: false, range: (_plot, min, max) => [min - 0.6, max + 0.6] },
      y: { range: (_plot, _min, max) => [0, Math.max(max * 1.1, 1)] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 30,
        space: LABEL_SPACE,
        incrs: [1, 2, 3, 4, 5, 7, 10],
        values: (_plot, places) => places.map(nameOf),
      },
      { ...axis, size: 48, incrs: WHOLE, values: (_plot, values) => values.map(value => short(value)) },
    ],
    series: [
      { label: what, value: (_plot, at) => (at === null ? '–' : nameOf(at)) },
      ...series.map(one => ({
        label: one.label,
        stroke: color(one.color),
        fill: color(one.color),
        width: 0,
        paths: uPlot.paths.bars?.({ size: [0.7, 48], radius: 0.15 }) ?? (() => null),
        points: { show: false },
        value: (/** @type {uPlot} */ _plot, /** @type {number | null} */ value) =>
          value === null ? '–' : number(value),
      })),
    ],
  };
}
