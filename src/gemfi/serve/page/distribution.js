// Where a score lies among those of ordinary inputs: a hill drawn from 201 quantiles, and a mark.

import { svg } from "./dom.js";
import { number, percent } from "./words.js";

const [WIDTH, HEIGHT, BASE, PEAK] = [380, 176, 138, 34]; // of the drawing; where the hill stands
const POINTS = 160;
const REACH = 1.2; // how far beyond the hill a mark is still drawn to scale, in widths of the hill

/** The share of ordinary inputs whose score is lower, read off the quantiles. */
export function rank(quantiles, value) {
  const last = quantiles.length - 1;
  if (value < quantiles[0]) return 0;
  if (value >= quantiles[last]) return 1;
  const above = quantiles.findIndex((each) => each > value);
  const [low, high] = [quantiles[above - 1], quantiles[above]];
  return (above - 1 + (value - low) / (high - low)) / last;
}

/** A smooth density: a small bell on every quantile. */
export function density(quantiles, from, to) {
  const last = quantiles.length - 1;
  const middle = quantiles[Math.round(0.75 * last)] - quantiles[Math.round(0.25 * last)];
  const width = Math.max(0.9 * (middle / 1.34) * quantiles.length ** -0.2, 1e-9);
  return Array.from({ length: POINTS + 1 }, (_, index) => {
    const x = from + ((to - from) * index) / POINTS;
    const height = quantiles.reduce((sum, q) => sum + Math.exp(-0.5 * ((x - q) / width) ** 2), 0);
    return [x, height];
  });
}

/**
 * The hill with the mark.
 * @param {number[]} quantiles of the score on calibration data.
 * @param {number} value of this input.
 * @param {{label: string, isTail: boolean}} about what it is, and whether the tail beyond the mark
 *   is shaded, whose share is the p-value.
 */
export function distribution(quantiles, value, { label, isTail }) {
  const last = quantiles.length - 1;
  const [low, high] = [quantiles[0], quantiles[Math.round(0.995 * last)]];
  const span = high - low || 1;
  const [from, to] = [
    Math.max(Math.min(low, value) - 0.06 * span, low - REACH * span),
    Math.min(Math.max(high, value) + 0.06 * span, high + REACH * span),
  ];
  const curve = density(quantiles, from, to);
  const tallest = Math.max(...curve.map(([, height]) => height));
  const x = (score) => ((score - from) / (to - from)) * WIDTH;
  const y = (height) => BASE - (height / tallest) * (BASE - PEAK);
  const area = (points) => points.length < 2 ? "" : `M${x(points[0][0])} ${BASE}` +
    points.map(([at, height]) => `L${x(at).toFixed(1)} ${y(height).toFixed(1)}`).join("") +
    `L${x(points.at(-1)[0])} ${BASE}Z`;
  const tail = isTail ? curve.filter(([at]) => at >= value) : [];
  const told = `${label} ${number(value)}; ${inWords(quantiles, value)}`;
  return svg("svg.hill", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": told },
    svg("path.ordinary", { d: area(curve) }),
    svg("path.tail", { d: area(tail) }),
    svg("line.axis", { x1: 0, x2: WIDTH, y1: BASE, y2: BASE }),
    ...ticks(quantiles, x),
    ...mark(value, x(Math.min(to, Math.max(from, value))), value > to ? 1 : value < from ? -1 : 0));
}

/** Where the middle and the rim of the ordinary inputs are. */
function ticks(quantiles, x) {
  const last = quantiles.length - 1;
  const at = (share) => quantiles[Math.round(share * last)];
  const middle = x(at(0.5));
  const rim = x(at(0.95));
  const labels = [[middle, "half"]];
  if (rim - middle > 44) labels.push([rim, "95%"]);
  return labels.flatMap(([place, text]) => [
    svg("line.tick", { x1: place, x2: place, y1: BASE, y2: BASE + 6 }),
    svg("text.tick", { x: place, y: BASE + 21, "text-anchor": "middle", text }),
  ]).concat(svg("text.tick", {
    x: WIDTH, y: HEIGHT - 2, "text-anchor": "end", text: "stranger →",
  }));
}

function mark(value, x, beyond) {
  const side = x > WIDTH - 90 ? "end" : x < 90 ? "start" : "middle";
  const text = beyond ? `${number(value)}, off the scale` : number(value);
  const back = -12 * beyond;
  return [
    svg("line.mark", { x1: x, x2: x, y1: 24, y2: BASE }),
    beyond ? svg("path.mark", { d: `M${x + back} ${BASE - 8}L${x} ${BASE}l${back} 8` }) :
      svg("circle.mark", { cx: x, cy: BASE, r: 6 }),
    svg("text.mark", { x, y: 15, "text-anchor": side, text: `this input: ${text}` }),
  ];
}

/** The place among ordinary inputs, as a sentence. */
export function inWords(quantiles, value) {
  const share = rank(quantiles, value);
  if (share >= 1) return "stranger than every ordinary input";
  if (share <= 0) return "more ordinary than every ordinary input";
  return `higher than ${percent(Math.min(share, 0.999))} of ordinary inputs`;
}
