// Things to try: shapes that draw themselves, and a picture that is no digit. Paths are in 0…100.

import { svg } from "./dom.js";

const SPACING = 2.5; // between the points of a stroke

/** Drawings: what to press, what to watch, and the strokes. */
export const DRAWINGS = [
  {
    name: "A plain 3",
    watch: "An ordinary digit: the heads agree, the evidence piles up in one corner.",
    paths: ["M30 27 C38 12 68 14 66 33 C65 45 54 48 45 49 C58 49 72 55 70 70 C67 89 36 89 28 75"],
  },
  {
    name: "4 or 9?",
    watch: "Two classes share the bars. It looks ordinary, and nobody could tell: ambiguous, so " +
      "abstain.",
    paths: ["M50 22 C43 24.5 32 33 32.5 45 C35 53.5 58 52 65.5 44.5", "M67 20 C66 42 65 64 63 85"],
  },
  {
    name: "Letter M",
    watch: "The bars are sure of a class, as they always find one. But the energy is off the " +
      "hill, and hardly any ordinary digit looks like this.",
    paths: ["M18 84 L24 18 L50 62 L76 18 L82 84"],
  },
  {
    name: "Letter E",
    watch: "See the dots scatter: no head has much evidence for anything.",
    paths: ["M70 18 L32 18 L32 84 L72 84", "M32 50 L64 50"],
  },
  {
    name: "Heart",
    watch: "Near the rim of what is ordinary. Pull the slider to the left, past the mark, and it " +
      "is taken for a digit after all.",
    paths: ["M50 82 C10 54 14 20 34 20 C46 20 50 34 50 36 C50 34 54 20 66 20 C86 20 90 54 50 82"],
  },
  {
    name: "Letter B",
    watch: "A trap: some 8s are written like this. A false-alarm rate says how often ordinary " +
      "digits are refused; it cannot promise that every stranger is.",
    paths: ["M30 16 L30 84", "M30 16 C70 14 72 48 32 48 C78 48 78 86 30 84"],
  },
  {
    name: "Scribble",
    watch: "Ink without meaning. Something still wins the bars; nothing else goes along.",
    paths: [
      "M20 40 L76 22 L26 58 L82 40 L22 76 L78 60 L34 84 L60 18 L40 80 L84 78 L18 26 L70 88",
    ],
  },
  {
    name: "A dot",
    watch: "Almost nothing, blown up to the size of a digit as every drawing is.",
    paths: ["M50 50 L50.4 50"],
  },
];

/** The strokes of a drawing, as lists of points in 0…1. */
export function strokesOf(drawing) {
  return drawing.paths.map((path) => {
    const line = svg("path", { d: path });
    const length = line.getTotalLength();
    const count = Math.max(1, Math.ceil(length / SPACING));
    return Array.from({ length: count + 1 }, (_, index) => {
      const { x, y } = line.getPointAtLength((length * index) / count);
      return [x / 100, y / 100];
    });
  });
}

/** A small sign of a drawing, for its button. */
export function sign(drawing) {
  const lines = drawing.paths.map((path) => svg("path", { d: path }));
  return svg("svg.sign", { viewBox: "0 0 100 100", "aria-hidden": "true" }, ...lines);
}

/** A photo that nobody took: hills under an evening sky, for a model that knows digits. */
export function landscape(size = 224) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = size;
  const context = canvas.getContext("2d");
  const sky = context.createLinearGradient(0, 0, 0, size);
  for (const [at, colour] of [[0, "#2b4c7e"], [0.5, "#e8a87c"], [0.7, "#f6d6ad"]]) {
    sky.addColorStop(at, colour);
  }
  context.fillStyle = sky;
  context.fillRect(0, 0, size, size);
  context.fillStyle = "#fff3d6";
  context.beginPath();
  context.arc(0.68 * size, 0.42 * size, 0.09 * size, 0, 2 * Math.PI);
  context.fill();
  for (const [height, swing, shift, colour] of [
    [0.58, 0.07, 0.4, "#6b6f8a"], [0.7, 0.06, 2.1, "#3f5a52"], [0.84, 0.05, 4, "#22372f"],
  ]) {
    context.fillStyle = colour;
    context.beginPath();
    context.moveTo(0, size);
    for (let x = 0; x <= size; x += 2) {
      const wave = Math.sin((x / size) * 5 + shift) + 0.4 * Math.sin((x / size) * 13 + shift);
      context.lineTo(x, size * (height - swing * wave));
    }
    context.lineTo(size, size);
    context.fill();
  }
  return canvas;
}
