// Small charts: bars of classes, the split of the uncertainty, the heads, the gate.

import { html, setVars, svg } from "./dom.js";
import { listed, nats, number, percent } from "./words.js";

const MOST_BARS = 12; // more classes than that, and only the likeliest are shown
const HEADS = 6; // colours of heads in the style sheet

/** The classes to show, in their own order: all, or the likeliest. */
export function shownClasses(probs) {
  const all = probs.map((_, index) => index);
  if (all.length <= MOST_BARS) return all;
  return ranked(probs).slice(0, MOST_BARS).sort((one, other) => one - other);
}

/** Indices, the largest value first. */
export function ranked(values) {
  return values.map((_, index) => index).sort((one, other) => values[other] - values[one]);
}

/** The number of a head's colour. */
export function headColour(index) {
  return `var(--head-${(index % HEADS) + 1})`;
}

/**
 * A bar for each class, with its name below.
 * @param {number[]} values in 0…1 for each class.
 * @param {string[]} classes their names.
 * @param {number[]} which are shown.
 * @param {string} label of the chart for who cannot see it.
 */
export function classBars(values, classes, which, label) {
  const top = which.reduce((best, each) => (values[each] > values[best] ? each : best), which[0]);
  const bars = which.map((index) => {
    const bar = html("i", { vars: { "--share": values[index] ?? 0 } });
    const name = html("span", { text: classes[index], title: classes[index] });
    return html(`div.bar${index === top ? ".is-top" : ""}`, {
      title: `${classes[index]}: ${percent(values[index])}`,
    }, html("div.track", {}, bar), name);
  });
  const longest = Math.max(...which.map((index) => classes[index].length));
  return html(`div.bars${longest > 3 ? ".has-long" : ""}`, {
    role: "img", "aria-label": label,
    vars: { "--count": which.length, "--name": `${Math.min(longest, 16)}ch` },
  }, ...bars);
}

/** Probabilities in words, the likeliest first. */
export function inWords(probs, classes) {
  return ranked(probs).slice(0, 3).map((index) => `${classes[index]} ${percent(probs[index])}`)
    .join(", ");
}

// -- the uncertainty ------------------------------------------------------------------------------

const PARTS = {
  aleatoric: ["Ambiguous", "aleatoric: what more training data would not settle"],
  within: ["Little evidence", "within heads: each head's doubt about its own opinion"],
  between: ["Disagreement", "between heads: the heads contradict each other"],
};

/** The split of the uncertainty: how much of what is possible, and what it is made of. */
export function split(uncertainty, count) {
  const total = Math.max(uncertainty.total, 0);
  const most = Math.log(count);
  const filled = Math.min(1, total / most);
  const sum = Object.keys(PARTS).reduce((all, name) => all + Math.max(0, uncertainty[name]), 0);
  const share = (name) => (sum > 0 ? Math.max(0, uncertainty[name]) / sum : 0);
  const pieces = Object.keys(PARTS).filter((name) => share(name) > 0).map((name) => html("i", {
    "data-part": name, title: `${name}: ${nats(uncertainty[name])}`,
    vars: { "--share": share(name) },
  }));
  const rows = Object.entries(PARTS).map(([name, [word, meaning]]) => html("div.part", {
    "data-part": name,
  }, html("dt", {}, html("b", { text: word }), html("span.soft", { text: ` ${meaning}` })),
  html("dd", { text: `${nats(uncertainty[name])} · ${percent(share(name))}` })));
  return [
    html("div.total", {},
      html("div.thermometer", { "aria-hidden": "true" },
        html("i", { vars: { "--share": filled } })),
      html("span", {}, html("b", { text: nats(total) }), ` of at most ${number(most)} nats`)),
    fan(filled),
    html("div.stack", {
      role: "img", "aria-label": `aleatoric ${percent(share("aleatoric"))}, within heads ` +
        `${percent(share("within"))}, between heads ${percent(share("between"))}`,
    }, ...pieces),
    html("dl.parts", {}, ...rows),
  ];
}

/** Lines from the filled part of the upper bar to the whole of the lower one. */
function fan(filled) {
  const edge = Math.max(0.5, 100 * filled);
  return svg("svg.fan", {
    viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true",
  }, svg("polygon", { points: `0,0 ${edge},0 100,10 0,10` }));
}

/** The split in one sentence. */
export function splitInWords(uncertainty, count) {
  if (uncertainty.within === 0 && uncertainty.between === 0) {
    return "This method knows one kind only: it cannot tell ambiguity from ignorance.";
  }
  if (uncertainty.total < 0.1 * Math.log(count)) return "There is hardly any uncertainty to split.";
  const [most] = ["aleatoric", "within", "between"].sort(
    (one, other) => uncertainty[other] - uncertainty[one]);
  return {
    aleatoric: "Mostly ambiguity: the input itself fits several classes.",
    within: "Mostly a lack of evidence: the model has seen too little like this.",
    between: "Mostly disagreement: the heads hold different opinions.",
  }[most];
}

// -- the heads ------------------------------------------------------------------------------------

/** A card for each head: its weight, its evidence, its opinion. */
export function heads(found, classes, which) {
  return found.map((head, index) => {
    const evidence = head.evidence === null ? null :
      html("span.soft", { text: `evidence ${number(head.evidence)}` });
    const weight = html("span.weight", {}, html("i", { vars: { "--share": head.weight } }),
      html("b", { text: percent(head.weight) }));
    const card = html("article.head", {},
      html("header", {}, html("h3", { text: `Head ${index + 1}` }), weight),
      classBars(head.probs, classes, which,
        `Head ${index + 1}, weight ${percent(head.weight)}: ${inWords(head.probs, classes)}`),
      html("footer", {},
        html("span", { text: `says ${classes[ranked(head.probs)[0]]}` }), evidence));
    setVars(card, { "--head": headColour(index) });
    return card;
  });
}

/** Whether the heads agree. */
export function headsInWords(found, classes) {
  if (found.length === 1) return "This model has one head.";
  const says = found.map((head) => ranked(head.probs)[0]);
  const different = [...new Set(says)];
  if (different.length === 1) {
    const gap = Math.max(...found.map((head) => head.probs[says[0]])) -
      Math.min(...found.map((head) => head.probs[says[0]]));
    const how = gap < 0.05 ? "agree" : gap < 0.2 ? "agree, not equally sure" : "agree in name only";
    return `All ${found.length} heads ${how}: ${classes[says[0]]}.`;
  }
  return `The heads disagree: they say ${listed(different.map((each) => classes[each]))}.`;
}

// -- the gate -------------------------------------------------------------------------------------

/** One gate for all classes as a sliding door, or a bar for each class; and the density. */
export function gate(detail, classes, which) {
  const found = [];
  if (detail.gate?.length === 1) found.push(door("Gate", detail.gate[0], "from the energy"));
  if (detail.gate?.length > 1) {
    found.push(classBars(detail.gate, classes, which, `Gate of each class: ${
      which.map((each) => `${classes[each]} ${percent(detail.gate[each])}`).join(", ")}`));
  }
  if (detail.rho !== null) found.push(door("Density", detail.rho, "from the features"));
  return found;
}

function door(name, open, from) {
  return html("div.door", {},
    html("span", {}, html("b", { text: name }), html("span.soft", { text: ` ${from}` })),
    html("b.amount", { text: percent(open) }),
    html("div.track", { role: "img", "aria-label": `${name} ${percent(open)} open` },
      html("i", { vars: { "--share": open } })));
}

/** What gate and density let through. */
export function gateInWords(detail) {
  if (detail.gate?.length > 1) {
    return "One gate for each class: what the model holds possible here, and what it shuts out.";
  }
  const open = (detail.gate?.[0] ?? 1) * (detail.rho ?? 1);
  if (!detail.gate) {
    return open > 0.5 ? "A crowded place: the model has seen much like this." :
      "A lonely place: the model has seen little like this.";
  }
  if (open > 0.6) return "Wide open: the evidence of the heads counts almost in full.";
  if (open > 0.15) return "Half shut: the evidence counts for less than the heads claim.";
  return "Shut: whatever the heads claim, hardly any of it is counted.";
}
