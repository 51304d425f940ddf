// What was asked so far, small; the slider recolours it all.

import { html, shown, byId } from "./dom.js";
import { signOf } from "./verdict.js";
import { decision } from "./words.js";

const MOST = 12;

export class Gallery {
  #past = [];

  /**
   * @param {HTMLElement} place
   * @param {{decide: (prediction: object) => string | null, restore: (past: object) => void}} does
   */
  constructor(place, does) {
    this.place = place;
    this.does = does;
  }

  /** Keep what was on show. */
  add(current) {
    const isKnown = this.#past.some((each) => each.prediction === current?.prediction);
    if (current === null || isKnown) return;
    this.#past = [current, ...this.#past].slice(0, MOST);
    this.refresh();
  }

  /** Decide anew about each. */
  refresh() {
    shown(byId("gallery"), this.#past.length > 0);
    this.place.replaceChildren(...this.#past.map((past) => {
      const name = this.does.decide(past.prediction);
      const word = name ? decision(name).word : "";
      const { label } = past.prediction;
      return html("button.past", {
        type: "button", "data-decision": name ?? "none", title: [label, word].join(" ").trim(),
        "aria-label": `Back to this one: ${label} ${word}`, onclick: () => this.does.restore(past),
      }, picture(past), name ? signOf(name) : null);
    }));
  }
}

function picture({ prediction }) {
  const frame = prediction.detail?.input;
  if (!frame) return html("span", { text: prediction.label });
  const canvas = html("canvas", { "aria-hidden": "true" });
  paintFrame(canvas, frame);
  return canvas;
}

/** The bytes (C, H, W) that the model saw, pixel by pixel. */
export function paintFrame(canvas, frame) {
  const [red, green, blue] = frame.length === 3 ? frame : [frame[0], frame[0], frame[0]];
  const [height, width] = [red.length, red[0].length];
  const image = new ImageData(width, height);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      image.data.set([red[y][x], green[y][x], blue[y][x], 255], 4 * (y * width + x));
    }
  }
  Object.assign(canvas, { width, height });
  canvas.getContext("2d").putImageData(image, 0, 0);
}
