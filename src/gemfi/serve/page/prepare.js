// From ink to what the model learned from, as MNIST was made: the box around the ink is scaled to
// 20 of 28 pixels with its aspect kept, each pixel is the mean of what it covers, and the centre of
// mass comes to the middle. Pure functions on grey images { width, height, values in 0…255 }.

const INNER = 20 / 28; // the share of the frame that the ink may fill
const FAINT = 24; // darker than this is no ink

/**
 * The frame that the model gets, rows of bytes; null without ink.
 * @param {{width: number, height: number, values: ArrayLike<number>}} grey ink is bright.
 * @param {number} height of the frame.
 * @param {number} width of the frame.
 */
export function prepared(grey, height, width) {
  const box = inkBox(grey);
  if (box === null) return null;
  const scale = Math.max(
    (box.right - box.left) / (INNER * width), (box.bottom - box.top) / (INNER * height),
  ); // pixels of the image for one of the frame
  const sums = summed(grey);
  const edge = (centre, index, size) => centre + (index - size / 2) * scale;
  const middle = centreOfMass(grey);
  const rows = [];
  for (let row = 0; row < height; row += 1) {
    const [top, bottom] = [edge(middle.y, row, height), edge(middle.y, row + 1, height)];
    const line = [];
    for (let column = 0; column < width; column += 1) {
      const [left, right] = [edge(middle.x, column, width), edge(middle.x, column + 1, width)];
      const ink = sumTo(sums, right, bottom) - sumTo(sums, left, bottom) -
        sumTo(sums, right, top) + sumTo(sums, left, top);
      line.push(Math.max(0, Math.min(255, Math.round(ink / (scale * scale)))));
    }
    rows.push(line);
  }
  return rows;
}

/** The box around the ink, in pixels; null if there is none. */
export function inkBox({ width, height, values }) {
  let [left, right, top, bottom] = [width, 0, height, 0];
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      if (values[y * width + x] < FAINT) continue;
      left = Math.min(left, x);
      right = Math.max(right, x + 1);
      top = Math.min(top, y);
      bottom = y + 1;
    }
  }
  return right > left ? { left, right, top, bottom } : null;
}

function centreOfMass({ width, height, values }) {
  let [mass, x, y] = [0, 0, 0];
  for (let row = 0; row < height; row += 1) {
    for (let column = 0; column < width; column += 1) {
      const ink = values[row * width + column];
      mass += ink;
      x += ink * (column + 0.5);
      y += ink * (row + 0.5);
    }
  }
  return { x: x / mass, y: y / mass };
}

/** Sums of all that is above and to the left, so that the mean of any box takes four looks. */
function summed({ width, height, values }) {
  const stride = width + 1;
  const totals = new Float64Array(stride * (height + 1));
  for (let y = 0; y < height; y += 1) {
    let line = 0;
    for (let x = 0; x < width; x += 1) {
      line += values[y * width + x];
      totals[(y + 1) * stride + x + 1] = totals[y * stride + x + 1] + line;
    }
  }
  return { width, height, stride, totals };
}

/** The sum above and left of a point between pixels. */
function sumTo({ width, height, stride, totals }, x, y) {
  const [u, v] = [Math.min(width, Math.max(0, x)), Math.min(height, Math.max(0, y))];
  const [column, row] = [Math.min(width - 1, Math.floor(u)), Math.min(height - 1, Math.floor(v))];
  const [right, down] = [u - column, v - row];
  const at = row * stride + column;
  const above = totals[at] * (1 - right) + totals[at + 1] * right;
  const below = totals[at + stride] * (1 - right) + totals[at + stride + 1] * right;
  return above * (1 - down) + below * down;
}

/** Dark ink on light paper becomes light ink on nothing; light on dark stays. */
export function asInk({ width, height, values }) {
  const rim = [];
  for (let x = 0; x < width; x += 1) rim.push(values[x], values[(height - 1) * width + x]);
  for (let y = 0; y < height; y += 1) rim.push(values[y * width], values[(y + 1) * width - 1]);
  rim.sort((one, other) => one - other);
  const paper = rim[rim.length >> 1];
  const distance = Array.from(values, (value) => Math.abs(value - paper));
  const strongest = distance.reduce((one, other) => Math.max(one, other), 1);
  const clean = distance.map((value) => Math.max(0, (255 * value) / strongest - 64) * (255 / 191));
  return { width, height, values: clean };
}
