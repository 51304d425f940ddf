// The verdict: the label, the decision in two steps, and the slider that moves it.

import { asksClarity, decide, ends, isSure, levelAt, place, stepOf, STEPS } from "./decide.js";
import { byId, html, setVars, shown, svg } from "./dom.js";
import {
  called, decision, meaning, nouns, percent, plain, promise, rate, scoreName, strangeness,
} from "./words.js";

const SIGNS = { // told by shape, not by colour alone
  accept: "M7 16.5 L13.5 23 L25.5 10",
  abstain: "M12 9 V23 M20 9 V23",
  unfamiliar: "M11 12 C11 5.5 21.5 6 21 12.5 C20.7 16 16 16.5 16 20 M16 25.2 V25.4",
};
const QUIET = 700; // milliseconds without a change before the verdict is read aloud

/** The sign of a decision. */
export function signOf(name) {
  return svg("svg.verdict-sign", { viewBox: "0 0 32 32", "aria-hidden": "true" },
    svg("circle", { cx: 16, cy: 16, r: 16 }), svg("path", { d: SIGNS[name] }));
}

export class Verdict {
  #model = null;
  #prediction = null;
  #timer = 0;

  /** @param {(level: number) => void} onLevel when the slider was moved. */
  constructor(onLevel) {
    this.level = 0;
    byId("level").addEventListener("input", (event) => {
      this.level = levelAt(Number(event.target.value), this.#model.policy);
      this.#again(onLevel);
    });
    byId("level-back").addEventListener("click", () => {
      this.level = this.#model.policy.level;
      byId("level").value = stepOf(this.level, this.#model.policy);
      this.#again(onLevel);
      byId("level").focus();
    });
  }

  #again(onLevel) {
    this.#tellLevel();
    if (this.#prediction) this.show(this.#prediction);
    onLevel(this.level);
  }

  /** A new model. */
  begin(model) {
    this.#model = model;
    shown(byId("steps"), model.policy !== null);
    shown(byId("no-policy"), model.policy === null);
    byId("no-policy").textContent = "This model came without a policy, so nothing is decided: no " +
      "accept, abstain or unfamiliar. If its file remembers calibration data, start the server " +
      "with --policy false_alarm=0.05 to have one.";
    if (model.policy === null) return;
    this.level = model.policy.level;
    const { least, most } = ends(model.policy);
    byId("level").max = STEPS;
    byId("level").value = stepOf(this.level, model.policy);
    byId("least").textContent = rate(least);
    byId("most").textContent = rate(most);
    this.#tellLevel();
  }

  /** The decision at the level of the slider. */
  decide(prediction) {
    return decide(prediction, this.#model.policy, this.level);
  }

  /** Show a prediction. */
  show(prediction) {
    this.#prediction = prediction;
    const name = this.decide(prediction);
    const card = byId("verdict");
    shown(card, true);
    card.dataset.decision = name ?? "none";
    const long = prediction.label.length > 2;
    byId("label").classList.toggle("is-long", long);
    byId("label").replaceChildren(html("b", { text: prediction.label }),
      html("span", { text: percent(prediction.confidence) }));
    const thing = called(prediction.label, this.#model);
    const said = name === null ?
      { word: "No verdict", says: `Most likely ${thing}.`, why: "" } :
      decision(name, thing, this.#model.policy);
    byId("word").replaceChildren(...(name ? [signOf(name)] : []), said.word);
    byId("says").textContent = said.says;
    byId("why").textContent = said.why;
    if (name !== null) this.#steps(prediction, name);
    this.#announce(`${said.word}. ${said.says} Confidence ${percent(prediction.confidence)}.`);
  }

  #steps(prediction, name) {
    const { policy } = this.#model;
    const isFamiliar = name !== "unfamiliar";
    byId("step-familiar").dataset.answer = isFamiliar ? "yes" : "no";
    byId("p-fact").textContent = `p = ${plain(prediction.p_value)} ${isFamiliar ? ">" : "≤"} ` +
      `${plain(this.level)}: ${isFamiliar ? "yes" : "no"}`;
    byId("p-words").textContent = strangeness(prediction.p_value, policy, nouns(this.#model));
    setVars(byId("p-mark"), { "--at": place(prediction.p_value, policy) });
    byId("p-mark").textContent = "this";
    const sure = isSure(prediction, policy);
    const isAsked = isFamiliar && asksClarity(policy);
    byId("step-sure").dataset.answer = !isAsked ? "skipped" : sure ? "yes" : "no";
    const limit = policy.threshold === null ? "no limit" : `limit ${plain(policy.threshold)}`;
    const doubt = `${scoreName(policy.doubt)} = ${plain(prediction.doubt)}, ${limit}`;
    byId("doubt-fact").textContent = isAsked ? `${doubt}: ${sure ? "yes" : "no"}` :
      isFamiliar ? `not asked by this policy (${doubt})` :
        `not asked of what is unfamiliar (${doubt})`;
    const most = Math.max(1, prediction.doubt ?? 0, policy.threshold ?? 0);
    shown(byId("doubt"), prediction.doubt !== null);
    setVars(byId("doubt"), {
      "--doubt": (prediction.doubt ?? 0) / most, "--limit": (policy.threshold ?? most) / most,
    });
  }

  #tellLevel() {
    const { policy } = this.#model;
    setVars(byId("alarm"), { "--at": place(this.level, policy) });
    byId("level").setAttribute("aria-valuetext", rate(this.level));
    byId("level-now").textContent = `${rate(this.level)}:`;
    byId("level-words").textContent = meaning(this.level, nouns(this.#model));
    byId("promise").textContent = promise(policy, this.level);
    shown(byId("level-back"), this.level !== policy.level);
    byId("level-back").textContent = `Back to the policy's ${rate(policy.level)}`;
  }

  /** Nothing to show. */
  clear() {
    this.#prediction = null;
    clearTimeout(this.#timer);
    shown(byId("verdict"), false);
  }

  #announce(text) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      byId("announce").textContent = text;
    }, QUIET);
  }
}
