// The evidence on the simplex of the three strongest classes: draws from the heads' Dirichlets.
//
// Of a Dirichlet with α, the shares of three classes among themselves, (p₁, p₂, p₃)/(p₁ + p₂ + p₃),
// are a Dirichlet with α₁, α₂, α₃: the other classes are left out by conditioning, exactly.

import { svg } from "./dom.js";
import { headColour, ranked } from "./charts.js";
import { percent } from "./words.js";

const DRAWS = 360;
const [WIDTH, TOP, SIDE] = [290, 34, 236]; // of the drawing; where the triangle begins, its side
const HEIGHT = TOP + SIDE * Math.sqrt(0.75) + 34;
const LEAST = 1e-12;

/** Numbers in 0…1 that are the same every time, so that draws move and do not flicker. */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** Log of a draw from Gamma(shape, 1), by Marsaglia and Tsang; a small shape in log space. */
function logGamma(shape, random) {
  if (shape < 1) {
    const more = logGamma(shape + 1, random);
    return more + Math.log(Math.max(random(), LEAST)) / Math.max(shape, LEAST);
  }
  const d = shape - 1 / 3;
  const c = 1 / Math.sqrt(9 * d);
  for (;;) {
    const normal = Math.sqrt(-2 * Math.log(Math.max(random(), LEAST))) *
      Math.cos(2 * Math.PI * random());
    const v = (1 + c * normal) ** 3;
    const least = Math.log(Math.max(random(), LEAST));
    if (v > 0 && least < normal ** 2 / 2 + d - d * v + d * Math.log(v)) return Math.log(d * v);
  }
}

/** A draw from a Dirichlet. */
export function draw(alpha, random) {
  const logs = alpha.map((each) => logGamma(each, random));
  const most = Math.max(...logs);
  const parts = logs.map((each) => Math.exp(each - most));
  const sum = parts.reduce((all, each) => all + each, 0);
  return parts.map((each) => each / sum);
}

/** Draws from the mixture, { share, head }: as many of each head as its weight asks for. */
export function draws(detail, which, count = DRAWS) {
  const scale = detail.rho ?? 1;
  return detail.heads.flatMap((head, index) => {
    const alpha = which.map((each) => Math.max(head.probs[each] * head.evidence * scale, LEAST));
    return Array.from({ length: Math.round(head.weight * count) }, (_, at) => ({
      share: draw(alpha, generator(1 + at * 31 + index * 7919)), head: index,
    }));
  });
}

/** The classes at the corners: the three with the most evidence, or both. */
export function corners(alpha) {
  return ranked(alpha).slice(0, 3);
}

/**
 * The triangle (or the line, of two classes) with draws, and a ring at the mean.
 * @param {object} detail of a prediction, with `alpha` and `heads`.
 * @param {string[]} classes their names.
 */
export function simplex(detail, classes) {
  const which = corners(detail.alpha);
  const total = which.reduce((sum, each) => sum + detail.alpha[each], 0);
  const mean = which.map((each) => detail.alpha[each] / total);
  const isLine = which.length === 2;
  const at = isLine ? onLine : inTriangle;
  const dots = draws(detail, which).map(({ share, head }, index) => {
    const [x, y] = at(share, index);
    const dot = svg("circle.draw", { cx: x.toFixed(1), cy: y.toFixed(1), r: 2.2 });
    dot.style.fill = headColour(head);
    return dot;
  });
  const [x, y] = at(mean, -1);
  const names = which.map((each) => classes[each]);
  const told = `Evidence among ${names.join(", ")}; in the mean ${
    which.map((each, index) => `${classes[each]} ${percent(mean[index])}`).join(", ")}`;
  return svg("svg.simplex", {
    viewBox: `0 0 ${WIDTH} ${isLine ? 120 : HEIGHT}`, role: "img", "aria-label": told,
  },
  isLine ? svg("line.frame", { x1: 30, x2: WIDTH - 30, y1: 60, y2: 60 }) : frame(),
  ...dots,
  svg("circle.mean", { cx: x, cy: y, r: 7 }),
  ...names.map((name, index) => cornerLabel(name, index, isLine)));
}

const LEFT = (WIDTH - SIDE) / 2;
const CORNERS = [[WIDTH / 2, TOP], [LEFT, TOP + SIDE * Math.sqrt(0.75)],
  [LEFT + SIDE, TOP + SIDE * Math.sqrt(0.75)]];

function inTriangle(share) {
  return [0, 1].map((axis) =>
    share.reduce((sum, part, index) => sum + part * CORNERS[index][axis], 0));
}

function onLine(share, index) {
  const spread = index < 0 ? 0 : 34 * (((index * 0.618034) % 1) - 0.5);
  return [30 + (WIDTH - 60) * share[1], 60 + spread];
}

function frame() {
  return svg("polygon.frame", { points: CORNERS.map((corner) => corner.join(",")).join(" ") });
}

function cornerLabel(name, index, isLine) {
  const text = name.length > 16 ? `${name.slice(0, 15)}…` : name;
  const kind = name.length > 4 ? "text.corner.is-long" : "text.corner";
  if (isLine) {
    return svg(kind, {
      x: index ? WIDTH : 0, y: 108, "text-anchor": index ? "end" : "start", text,
    });
  }
  const [x, y] = CORNERS[index];
  const anchor = name.length > 4 && index ? ["", "start", "end"][index] : "middle";
  const shift = anchor === "middle" ? 0 : index === 1 ? -30 : 30;
  const line = index ? y + 25 : y - 13;
  return svg(kind, { x: x + shift, y: line, "text-anchor": anchor, text });
}

/** How much evidence there is, in words. */
export function evidenceInWords(alpha) {
  const total = alpha.reduce((sum, each) => sum + each, 0);
  if (total < 1) return "Worth less than one observation: it counts for nothing.";
  const worth = Number(total.toPrecision(2)).toLocaleString("en");
  if (total < 5 * alpha.length) return `Worth about ${worth} observations: little.`;
  return `Worth about ${worth} observations.`;
}
