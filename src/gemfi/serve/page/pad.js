// The drawing pad: mouse, touch, pen and keyboard make strokes; points lie in 0…1.

import { isCalm } from "./dom.js";

export const GRID = 280; // pixels of the grey image that is prepared for the model
const PEN = 0.075; // width of a stroke
const STEP = 1 / 28; // of an arrow key
const DRAWN_IN = 900; // milliseconds that an example takes to draw itself
const INK = "#f7f8fa";

export class Pad {
  #strokes = [];
  #pen = { x: 0.5, y: 0.3, isDown: false };
  #pointer = null;
  #picture = null;
  #playing = 0;
  #isStill = false;

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {{onChange: () => void, onClear: () => void, onTell: (text: string) => void}} tells
   */
  constructor(canvas, tells) {
    this.canvas = canvas;
    this.tells = tells;
    canvas.addEventListener("pointerdown", (event) => this.#begin(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const end of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(end, (event) => this.#end(event));
    }
    canvas.addEventListener("keydown", (event) => this.#key(event));
    for (const focus of ["focus", "blur"]) {
      canvas.addEventListener(focus, () => this.#leave(focus));
    }
    new ResizeObserver(() => this.paint()).observe(canvas);
  }

  /** A still pad shows pictures, and nobody draws on it. */
  set isStill(is) {
    this.#isStill = is;
    this.canvas.classList.toggle("is-still", is);
    this.canvas.tabIndex = is ? -1 : 0;
    this.canvas.setAttribute("role", is ? "img" : "application");
    this.canvas.setAttribute("aria-label", is ? "Image" : "Drawing pad");
  }

  get isEmpty() {
    return this.#strokes.length === 0 && this.#picture === null;
  }

  /** What was drawn; to be given back to `set`. */
  get strokes() {
    return this.#strokes;
  }

  /** Put strokes on the pad at once. */
  set(strokes) {
    this.#stop();
    this.#picture = null;
    this.#strokes = strokes.map((stroke) => [...stroke]);
    this.paint();
  }

  /** Show a picture instead of strokes. */
  show(picture) {
    this.set([]);
    this.#picture = picture;
    this.paint();
  }

  /** Draw strokes one after the other, as a hand would. */
  play(strokes) {
    this.set([]);
    if (isCalm()) {
      this.set(strokes);
      this.tells.onChange();
      return;
    }
    const total = strokes.reduce((sum, stroke) => sum + stroke.length, 0);
    const start = performance.now();
    const frame = (now) => {
      let left = Math.ceil(Math.min(1, (now - start) / DRAWN_IN) * total);
      this.#strokes = [];
      for (const stroke of strokes) {
        if (left > 0) this.#strokes.push(stroke.slice(0, left));
        left -= stroke.length;
      }
      this.paint();
      this.tells.onChange();
      this.#playing = left < 0 || now - start < DRAWN_IN ? requestAnimationFrame(frame) : 0;
    };
    this.#playing = requestAnimationFrame(frame);
  }

  clear() {
    this.set([]);
    this.#pen.isDown = false;
    this.tells.onClear();
  }

  undo() {
    if (this.#picture !== null || this.#strokes.length <= 1) {
      this.clear();
      return;
    }
    this.#stop();
    this.#pen.isDown = false;
    this.#strokes.pop();
    this.paint();
    this.tells.onChange();
  }

  /** The ink as a grey image. */
  grey() {
    const canvas = new OffscreenCanvas(GRID, GRID);
    const context = canvas.getContext("2d", { willReadFrequently: true });
    this.#ink(context, GRID, "#fff");
    const { data } = context.getImageData(0, 0, GRID, GRID);
    return { width: GRID, height: GRID, values: data.filter((_, index) => index % 4 === 3) };
  }

  /** Bring the screen up to date. */
  paint() {
    const size = Math.round(this.canvas.clientWidth * devicePixelRatio);
    if (size === 0) return;
    if (this.canvas.width !== size) this.canvas.width = this.canvas.height = size;
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, size, size);
    if (this.#picture) paintWhole(context, this.#picture, size);
    this.#ink(context, size, INK);
    if (document.activeElement === this.canvas && this.canvas.matches(":focus-visible")) {
      this.#cursor(context, size);
    }
  }

  #ink(context, size, colour) {
    Object.assign(context, {
      lineCap: "round", lineJoin: "round", lineWidth: PEN * size, strokeStyle: colour,
    });
    for (const stroke of this.#strokes) {
      context.beginPath();
      smooth(context, stroke, size);
      context.stroke();
    }
  }

  #cursor(context, size) {
    const { x, y, isDown } = this.#pen;
    context.beginPath();
    context.arc(x * size, y * size, (PEN * size) / 1.6, 0, 2 * Math.PI);
    Object.assign(context, { lineWidth: size / 110, strokeStyle: "#56b4e9", fillStyle: "#56b4e9" });
    if (isDown) context.fill();
    context.stroke();
  }

  // -- pointer -----------------------------------------------------------------------------------

  #begin(event) {
    if (this.#isStill || event.button !== 0 || this.#pointer !== null) return;
    event.preventDefault();
    this.#stop();
    if (this.#picture) this.clear();
    this.canvas.focus({ preventScroll: true, focusVisible: false });
    this.canvas.setPointerCapture(event.pointerId);
    this.#pointer = event.pointerId;
    this.#strokes.push([this.#point(event)]);
    this.#changed();
  }

  #move(event) {
    if (event.pointerId !== this.#pointer) return;
    const all = event.getCoalescedEvents?.() ?? [];
    for (const each of all.length ? all : [event]) this.#strokes.at(-1).push(this.#point(each));
    this.#changed();
  }

  #end(event) {
    if (event.pointerId !== this.#pointer) return;
    this.#pointer = null;
    this.#changed();
  }

  #point(event) {
    const box = this.canvas.getBoundingClientRect();
    const inside = (value) => Math.min(1, Math.max(0, value));
    return [
      inside((event.clientX - box.x) / box.width), inside((event.clientY - box.y) / box.height),
    ];
  }

  // -- keyboard ----------------------------------------------------------------------------------

  #key(event) {
    const moves = {
      ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1],
    };
    if (this.#isStill) return;
    const isControl = event.ctrlKey || event.metaKey;
    const undoes = event.key === "Backspace" || (event.key === "z" && isControl);
    if (moves[event.key]) this.#step(moves[event.key], event.shiftKey ? 3 : 1);
    else if (event.key === " ") this.#toggle();
    else if (undoes) this.undo();
    else if (event.key === "Delete") this.clear();
    else return;
    event.preventDefault();
  }

  #step([right, down], times) {
    const inside = (value) => Math.min(0.96, Math.max(0.04, value));
    this.#pen.x = inside(this.#pen.x + right * times * STEP);
    this.#pen.y = inside(this.#pen.y + down * times * STEP);
    if (!this.#pen.isDown) {
      this.paint();
      return;
    }
    if (this.#strokes.length === 0) this.#strokes.push([]);
    this.#strokes.at(-1).push([this.#pen.x, this.#pen.y]);
    this.#changed();
  }

  #toggle() {
    this.#stop();
    this.#pen.isDown = !this.#pen.isDown;
    this.tells.onTell(this.#pen.isDown ? "Pen down" : "Pen up");
    if (!this.#pen.isDown) {
      this.paint();
      return;
    }
    if (this.#picture) {
      this.clear();
      this.#pen.isDown = true;
    }
    this.#strokes.push([[this.#pen.x, this.#pen.y]]);
    this.#changed();
  }

  #leave(focus) {
    if (focus === "blur") this.#pen.isDown = false;
    this.paint();
  }

  #stop() {
    cancelAnimationFrame(this.#playing);
    this.#playing = 0;
  }

  #changed() {
    this.paint();
    this.tells.onChange();
  }
}

/** A path through points, rounded between them. */
function smooth(context, stroke, size) {
  const [first, ...rest] = stroke.map(([x, y]) => [x * size, y * size]);
  context.moveTo(...first);
  if (rest.length === 0) context.lineTo(first[0] + 0.01, first[1]);
  rest.forEach((point, index) => {
    const next = rest[index + 1];
    if (!next) context.lineTo(...point);
    else context.quadraticCurveTo(...point, (point[0] + next[0]) / 2, (point[1] + next[1]) / 2);
  });
}

/** A picture in the middle of a square, all of it. */
function paintWhole(context, picture, size) {
  const scale = Math.min(size / picture.width, size / picture.height);
  const [width, height] = [picture.width * scale, picture.height * scale];
  context.imageSmoothingEnabled = scale < 4; // the pixels of a tiny picture are its content
  context.drawImage(picture, (size - width) / 2, (size - height) / 2, width, height);
}
