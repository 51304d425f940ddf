// The panels that look inside a prediction. A panel that has nothing to show is not there.

import * as charts from "./charts.js";
import { distribution, inWords } from "./distribution.js";
import { byId, html, shown } from "./dom.js";
import { evidenceInWords, simplex } from "./simplex.js";
import { number, nouns, percent, plain, scoreName } from "./words.js";

const FIRST = ["energy", "unfamiliarity", "evidence"]; // scores to look at, then the policy's own
const MOST_SCORES = 4;
const WHAT = {
  energy: "A small network learned to give ordinary inputs a low energy and strange ones, made " +
    "up for its training, a high one. The hill shows the energies of ordinary inputs, the line " +
    "is yours. It needs no class to be right: it only asks whether this looks like anything at " +
    "all. The energy opens and shuts the gate.",
  unfamiliarity: "Evidence, energy and density in one number: how badly they fit, together, what " +
    "they are on ordinary inputs.",
  evidence: "The negative logarithm of all the evidence: far to the right, the model has next to " +
    "nothing to go by.",
  max_prob: "One minus the highest bar.",
};
const TAIL = " The policy goes by this score: the shaded part of the hill, beyond the line, is " +
  "the p-value.";
const ONE_GATE = "The gate multiplies the evidence of all heads at once. It opens with a low " +
  "energy and shuts with a high one. So the model may still prefer a class, but it cannot claim " +
  "to know much: the bars stay, the dots of the evidence scatter.";
const DENSITY = "The density says how crowded the training data is around the features of this " +
  "input; where it is low, the evidence is discounted.";
const CLASS_GATES = "A gate between 0 and 1 for each class, made from the features and the " +
  "energy. It multiplies the probability of its class before they are brought back to a sum of " +
  "100%: a class with a shut gate loses to one with an open gate.";

export class Panels {
  #model = null;
  #prediction = null;
  #score = null;

  begin(model) {
    this.#model = model;
    byId("hill-title").textContent = `Among ordinary ${nouns(model)}`;
  }

  clear() {
    this.#prediction = null;
    shown(byId("panels"), false);
  }

  show(prediction) {
    this.#prediction = prediction;
    const { classes } = this.#model;
    const { detail } = prediction;
    const which = charts.shownClasses(prediction.probs);
    shown(byId("panels"), true);
    byId("probs-says").textContent = charts.inWords(prediction.probs, classes);
    byId("probs").replaceChildren(charts.classBars(prediction.probs, classes, which,
      `Probabilities: ${charts.inWords(prediction.probs, classes)}`));
    byId("split-says").textContent = charts.splitInWords(prediction.uncertainty, classes.length);
    byId("split").replaceChildren(...charts.split(prediction.uncertainty, classes.length));
    this.#heads(detail, which);
    this.#simplex(detail);
    this.#hill();
    this.#gate(detail, which);
    this.#flow(prediction);
  }

  #heads(detail, which) {
    const found = detail?.heads ?? [];
    shown(byId("panel-heads"), found.length > 1);
    if (found.length < 2) return;
    byId("heads-says").textContent = charts.headsInWords(found, this.#model.classes);
    byId("heads").replaceChildren(...charts.heads(found, this.#model.classes, which));
  }

  #simplex(detail) {
    const has = Boolean(detail?.alpha) && detail.alpha.every(Number.isFinite) &&
      detail.heads.every((head) => head.evidence !== null);
    shown(byId("panel-simplex"), has);
    if (!has) return;
    byId("simplex-says").textContent = evidenceInWords(detail.alpha);
    byId("simplex").replaceChildren(simplex(detail, this.#model.classes));
  }

  // -- the scores among those of ordinary inputs -------------------------------------------------

  #hill() {
    const { references, policy } = this.#model;
    const { scores } = this.#prediction;
    const has = Object.keys(references).filter((name) => Number.isFinite(scores[name]));
    const wanted = [...FIRST, policy?.score].filter((name) => has.includes(name));
    const order = [...new Set(wanted.length ? wanted : has)].slice(0, MOST_SCORES);
    shown(byId("panel-hill"), order.length > 0);
    if (order.length === 0) return;
    if (!order.includes(this.#score)) this.#score = order[0];
    this.#tabs(order);
    const isTail = this.#score === policy?.score;
    const quantiles = references[this.#score];
    const value = scores[this.#score];
    const label = scoreName(this.#score);
    byId("hill-says").textContent = `${label} ${inWords(quantiles, value)}.`;
    byId("hill").replaceChildren(distribution(quantiles, value, { label, isTail }));
    const what = WHAT[this.#score] ?? `${label} of ordinary inputs, and of yours.`;
    byId("hill-what").textContent = isTail ? what + TAIL : what;
  }

  #tabs(names) {
    const place = byId("hill-tabs");
    shown(place, names.length > 1);
    if (place.childElementCount !== names.length) {
      place.replaceChildren(...names.map((name) => html("button", {
        type: "button", text: scoreName(name), "data-score": name,
        onclick: () => {
          this.#score = name;
          this.#hill();
        },
      })));
    }
    for (const button of place.children) {
      button.setAttribute("aria-pressed", button.dataset.score === this.#score);
    }
  }

  // -- the gate, and the whole chain -------------------------------------------------------------

  #gate(detail, which) {
    const has = Boolean(detail) && (Boolean(detail.gate?.length) || detail.rho !== null);
    shown(byId("panel-gate"), has);
    if (!has) return;
    byId("gate-title").textContent = detail.gate?.length ? "The gate" : "The density";
    byId("gate-says").textContent = charts.gateInWords(detail);
    byId("gate").replaceChildren(...charts.gate(detail, this.#model.classes, which));
    const texts = [detail.gate?.length === 1 && ONE_GATE, detail.gate?.length > 1 && CLASS_GATES,
      detail.rho !== null && DENSITY];
    byId("gate-what").textContent = texts.filter(Boolean).join(" ");
  }

  #flow(prediction) {
    const { detail } = prediction;
    const { policy, classes } = this.#model;
    const says = (detail?.heads ?? []).map((head) => classes[charts.ranked(head.probs)[0]]);
    const now = {
      features: detail?.rho != null ? `density ${percent(detail.rho)}` : "",
      heads: says.length > 1 ? says.join(" · ") : null,
      energy: detail?.energy == null ? null : number(detail.energy) +
        (detail.gate?.length === 1 ? ` → ${percent(detail.gate[0])} open` : ""),
      mixture: `${prediction.label} ${percent(prediction.confidence)}`,
      decision: policy && prediction.p_value !== null ? `p = ${plain(prediction.p_value)}` : null,
    };
    const steps = flow(now);
    shown(byId("panel-flow"), steps.length > 2);
    byId("flow").replaceChildren(...steps);
  }
}

const STEPS = {
  features: ["Features", "One network turns the input into a point among the training data."],
  heads: ["Heads", "Each judges the features and says how much it knows."],
  energy: ["Energy, gate", "What is strange has a high energy, which shuts the gate."],
  mixture: ["Mixture", "Opinions are weighed and mixed; their spread is the uncertainty."],
  decision: ["Decision", "Ordinary enough? Then: clear enough?"],
};

/**
 * The chain from the input to the decision.
 * @param {object} now what each step says of an input; null leaves the step out.
 */
function flow(now) {
  return Object.entries(STEPS).filter(([step]) => now[step] !== null).map(([step, [name, what]]) =>
    html("li", {}, html("b", { text: name }), html("span", { text: what }),
      html("b.now", { text: now[step] })));
}
