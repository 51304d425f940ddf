// The page: what is given goes to the server, what it answers is shown.

import { askModel, Newest, setToken } from "./api.js";
import { byId, html, setVars, shown } from "./dom.js";
import { DRAWINGS, landscape, sign, strokesOf } from "./examples.js";
import { Gallery, paintFrame } from "./gallery.js";
import { greyOf, pictureOf, base64Of } from "./images.js";
import { Pad } from "./pad.js";
import { Panels } from "./panels.js";
import { asInk, prepared } from "./prepare.js";
import { rowForm, shaped } from "./rows.js";
import { signOf, Verdict } from "./verdict.js";
import { decision, nouns, number } from "./words.js";

const GONE = "The server does not answer. It may have stopped, or the network is down.";

const panels = new Panels();
const verdict = new Verdict(() => gallery.refresh());
const gallery = new Gallery(byId("past"), {
  decide: (prediction) => verdict.decide(prediction), restore,
});
const newest = new Newest(onAnswer, onProblem);
const pad = new Pad(byId("pad"), { onChange: onDrawn, onClear: onCleared, onTell: announce });

let model = null;
let row = null;
let drawing = {}; // the identity of what is on the pad; a new one after each clear
let opened = null; // { picture, data } of an image that was dropped, chosen or pasted
let asked = null; // the input that was given last
let current = null; // { prediction, input } on show

// -- the model ------------------------------------------------------------------------------------

async function begin() {
  try {
    model = await askModel();
  } catch (problem) {
    onProblem(problem);
    return;
  }
  shown(byId("gone"), false);
  verdict.begin(model);
  tellModel();
  panels.begin(model);
  setInput();
  shown(byId("desk"), true);
  shown(byId("about"), true);
  pad.paint();
}

function isImage() {
  return model.input.kind === "image";
}

/** Whether one can draw for it: images of one channel. */
function isDrawn() {
  return isImage() && model.input.shape[0] === 1;
}

function tellModel() {
  const noun = nouns(model);
  document.title = `gemfi: ${model.name}`;
  byId("model-name").textContent = model.name;
  const what = isDrawn() ? (noun === "digits" ? "Draw a digit." : "Draw something.") :
    isImage() ? "Open an image." : model.input.kind === "row" ? "Enter a row." : "Enter numbers.";
  byId("headline").textContent = `${what} See what the model knows, and whether it knows.`;
  byId("lead").textContent = !model.policy ? "" : isDrawn() ?
    "Then draw something that is none. A model that only ranks classes must call it something; " +
    "this one can say that it has no idea." :
    "A model that only ranks classes must always say something; this one can say that it has " +
    "no idea.";
  byId("idle-title").textContent = model.policy ? "Three possible verdicts" : "No verdicts";
  byId("legend").replaceChildren(...["accept", "abstain", "unfamiliar"].map((name) => {
    const { word, why } = decision(name, "", model.policy);
    return html("li", { "data-decision": name }, signOf(name), html("div", {},
      html("b", { text: word }), html("span", { text: why })));
  }));
  shown(byId("legend"), model.policy !== null);
  byId("idle-note").textContent = model.policy ? "" : byId("no-policy").textContent;
  tellFacts();
}

function tellFacts() {
  const { policy } = model;
  const accuracy = model.metrics?.validation?.accuracy;
  const facts = {
    Model: model.name,
    Method: [model.title ?? model.method, model.summary].filter(Boolean).join(": "),
    Paper: model.paper, Classes: model.classes.length, Input: model.input.shape.join(" × "),
    Accuracy: accuracy ? `${accuracy}% on validation data` : null,
    Policy: policy && `${policy.goal}; compared with ` +
      `${policy.calibration.toLocaleString("en")} ordinary inputs`,
  };
  byId("facts").replaceChildren(...Object.entries(facts).filter(([, value]) => value).map(
    ([name, value]) => html("div", {}, html("dt", { text: name }), html("dd", { text: value }))));
}

function setInput() {
  shown(byId("drawing"), isImage());
  shown(byId("row"), !isImage());
  shown(byId("try"), isDrawn() && nouns(model) === "digits");
  byId("undo").hidden = !isDrawn();
  if (isImage()) {
    byId("pad-hint").textContent = isDrawn() ? "Draw here, or drop an image" : "Drop an image here";
    pad.isStill = !isDrawn();
  } else {
    row = rowForm(byId("row"), model, { onRow, onPart: onPartOfRow });
  }
  byId("examples").replaceChildren(...DRAWINGS.map((each) => html("button.chip", {
    type: "button", onclick: () => tryDrawing(each),
  }, sign(each), each.name)), html("button.chip", {
    type: "button", text: "A photo", onclick: tryPhoto,
  }));
}

// -- what is given --------------------------------------------------------------------------------

/** Ask about an input: `{ source, body() }` and what it takes to bring it back. */
function give(input) {
  asked = input;
  tellProblem("");
  newest.want(input);
}

function onDrawn() {
  if (!isDrawn()) return;
  opened = null;
  shown(byId("as-ink"), false);
  shown(byId("pad-hint"), pad.isEmpty);
  const frame = prepared(pad.grey(), ...model.input.shape.slice(1));
  if (frame === null) return;
  const strokes = pad.strokes.map((stroke) => [...stroke]);
  const body = JSON.stringify({ input: [scaled(frame)] });
  give({ source: drawing, strokes, isInk: true, body: () => body });
}

/** Bytes as the model takes them: models of floating-point images have them in 0…1. */
function scaled(frame) {
  if (model.input.dtype === "uint8") return frame;
  return frame.map((line) => line.map((value) => value / 255));
}

function onCleared() {
  gallery.add(current);
  drawing = {};
  opened = null;
  forget();
  tellProblem("");
  for (const id of ["as-ink", "watch"]) shown(byId(id), false);
  shown(byId("pad-hint"), true);
}

/** Show nothing, and wait for nothing. */
function forget() {
  [asked, current] = [null, null];
  newest.forget();
  verdict.clear();
  panels.clear();
  shown(byId("saw-figure"), false);
  shown(byId("idle"), true);
}

function tryDrawing(example) {
  pad.clear();
  tellWatch(example.watch);
  pad.play(strokesOf(example));
}

function tryPhoto() {
  const canvas = landscape();
  canvas.toBlob((blob) => openFiles([new File([blob], "photo.png", { type: "image/png" })])
    .then(() => tellWatch("Hills at dusk. The model has only ever seen digits, and says so.")));
}

function tellWatch(text) {
  byId("watch").textContent = text;
  shown(byId("watch"), true);
}

async function openFiles(files) {
  if (files.length === 0 || !model) return;
  if (!isImage()) {
    row.set((await files[0].text()).slice(0, 100000));
    return;
  }
  if (files.length > 1) {
    tellProblem(`One image at a time, please: these are ${files.length} files.`);
    return;
  }
  const [file] = files;
  const most = model.limits?.bytes ?? Infinity;
  if (file.size * (4 / 3) + 64 > most) {
    tellProblem(`${file.name} is too large: ${size(file.size)}, and the server takes up to ` +
      `${size(0.75 * most)}.`);
    return;
  }
  const picture = await pictureOf(file);
  if (picture === null) {
    tellProblem(`${file.name} is not an image that can be read.`);
    return;
  }
  pad.clear();
  pad.show(picture);
  opened = { picture, data: await base64Of(file) };
  shown(byId("pad-hint"), false);
  shown(byId("as-ink"), isDrawn());
  giveOpened();
}

function giveOpened() {
  const { picture, data } = opened;
  const frame = byId("ink").checked && isDrawn() ?
    prepared(asInk(greyOf(picture)), ...model.input.shape.slice(1)) : null;
  const body = JSON.stringify(frame ? { input: [scaled(frame)] } : { image: data });
  give({ source: opened, opened, isInk: frame !== null, body: () => body });
}

function size(bytes) {
  return bytes < 1e6 ? `${Math.max(1, Math.round(bytes / 1e3))} kB` : `${number(bytes / 1e6)} MB`;
}

function onRow(values) {
  const input = Array.isArray(values) ? shaped(values, model.input.shape) : values;
  const body = JSON.stringify({ input });
  give({ source: row, body: () => body });
}

function onPartOfRow(text) {
  forget();
  tellProblem(text, "part");
}

/** Bring an earlier input back. */
function restore(past) {
  onCleared();
  if (past.input.opened) {
    opened = past.input.opened;
    pad.show(opened.picture);
    shown(byId("as-ink"), isDrawn());
  } else {
    pad.set(past.input.strokes);
  }
  shown(byId("pad-hint"), false);
  show(past.prediction, { ...past.input, source: drawing });
}

// -- what comes back ------------------------------------------------------------------------------

function onAnswer(prediction, input) {
  shown(byId("gone"), false);
  tellProblem("");
  show(prediction, input);
}

function show(prediction, input) {
  current = { prediction, input };
  shown(byId("idle"), false);
  verdict.show(prediction);
  panels.show(prediction);
  const frame = prediction.detail?.input;
  shown(byId("saw-figure"), Boolean(frame));
  if (!frame) return;
  paintFrame(byId("saw"), frame);
  byId("saw-size").textContent = `${frame[0][0].length} × ${frame[0].length} pixels` +
    (input.isInk ? ", the ink scaled and centred as in MNIST" : "");
}

function onProblem(problem) {
  if (problem.status === 401) {
    askToken();
  } else if (problem.status === 0 || problem.status >= 502) {
    byId("gone").firstElementChild.textContent = problem.status ? problem.message : GONE;
    shown(byId("gone"), true);
    if (!model) byId("headline").textContent = "No answer yet.";
  } else if (problem.status === 429) {
    tellProblem("The server is busy. Trying again in a moment…");
  } else {
    tellProblem(problem.message);
  }
}

/** A text near the input; `kind` "part" is no mistake, only not all of it yet. */
function tellProblem(text, kind = "error") {
  byId("problem").textContent = text;
  byId("problem").dataset.kind = kind;
  shown(byId("problem"), Boolean(text));
}

function announce(text) {
  byId("announce").textContent = text;
}

function askToken() {
  const dialog = byId("token-dialog");
  if (sessionStorage.getItem("gemfi-token")) {
    byId("token-note").textContent = "The server did not accept that token.";
  }
  if (!dialog.open) dialog.showModal();
}

function again() {
  if (model && asked) give(asked);
  else begin();
}

// -- wiring ---------------------------------------------------------------------------------------

function wire() {
  const column = document.querySelector(".input"); // stays in sight, or its lower end does
  const measure = () => setVars(column, { "--tall": `${column.offsetHeight}px` });
  new ResizeObserver(measure).observe(column);
  byId("undo").addEventListener("click", () => pad.undo());
  byId("clear").addEventListener("click", () => pad.clear());
  byId("choose").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", (event) => {
    openFiles([...event.target.files]);
    event.target.value = ""; // so that the same file can be chosen again
  });
  byId("ink").addEventListener("change", () => opened && giveOpened());
  byId("retry").addEventListener("click", again);
  byId("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    setToken(byId("token").value.trim());
    byId("token").value = "";
    byId("token-dialog").close();
    again();
  });
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    byId("drop").classList.add("is-over");
  });
  for (const end of ["dragleave", "drop"]) {
    document.addEventListener(end, () => byId("drop").classList.remove("is-over"));
  }
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    openFiles([...event.dataTransfer.files]);
  });
  document.addEventListener("paste", (event) => {
    if (event.clipboardData.files.length === 0) return; // text goes where it is pasted
    event.preventDefault();
    openFiles([...event.clipboardData.files]);
  });
}

wire();
begin();
