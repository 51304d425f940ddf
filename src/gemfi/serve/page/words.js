// Numbers in plain words. Pure functions: nothing here touches the page.

import { asksClarity } from "./decide.js";

const NUMBER = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** A number with three digits that mean something. */
export function number(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(1);
  return NUMBER.format(value);
}

/** A p-value or a small limit, without an exponent. */
export function plain(value) {
  return value === null ? "–" : String(Number(value.toPrecision(2)));
}

/** An amount of uncertainty. */
export function nats(value) {
  return value > 0 && value < 0.001 ? "<0.001" : String(Number(value.toFixed(3)));
}

/** A share between 0 and 1 in percent, honest at both ends. */
export function percent(share) {
  if (share === null || !Number.isFinite(share)) return "–";
  if (share > 0 && share < 0.001) return "<0.1%";
  if (share < 1 && share > 0.999) return ">99.9%";
  const digits = share >= 0.1 ? (share > 0.99 && share < 1 ? 1 : 0) : 1;
  return `${Number((100 * share).toFixed(digits))}%`;
}

/** A false-alarm rate: all its digits matter, down to hundredths of a percent. */
export function rate(level) {
  return `${Number((100 * level).toPrecision(2))}%`;
}

/** "3 of 100", "4 of 1,000": the round total that leaves a whole count. */
export function counted(share) {
  for (const total of [100, 1000, 10000, 100000]) {
    const count = Math.round(share * total);
    if (count >= 1) return { count, total: total.toLocaleString("en") };
  }
  return { count: 1, total: "a million" };
}

/** What an ordinary input of this model is called, in the plural. */
export function nouns(model) {
  const digits = model.classes.join() === "0,1,2,3,4,5,6,7,8,9" && model.input.shape[0] === 1;
  if (model.input.kind === "image") return digits ? "digits" : "images";
  return { row: "rows", text: "texts" }[model.input.kind] ?? "inputs";
}

/** The p-value as a sentence. */
export function strangeness(p, policy, noun) {
  if (p * (policy.calibration + 1) < 1.5) {
    const all = policy.calibration.toLocaleString("en");
    return `Not one of the ${all} ordinary ${noun} kept for comparison looks this strange.`;
  }
  const { count, total } = counted(p);
  const verb = count === 1 ? "looks" : "look";
  return `Of ${total} ordinary ${noun}, about ${count} ${verb} at least this strange.`;
}

const DECISIONS = {
  accept: {
    word: "Accept",
    says: (thing) => `This is ${thing}.`,
    why: "It looks ordinary, and the model is sure enough to answer.",
  },
  abstain: {
    word: "Abstain",
    says: (thing) => `Perhaps ${thing}. Ask a person.`,
    why: "It looks ordinary, but the model cannot tell which class it is.",
  },
  unfamiliar: {
    word: "Unfamiliar",
    says: (thing) => `Nothing it knows. To call it ${thing} would be a guess.`,
    why: "It does not look like what the model learned from, so its label means nothing.",
  },
};

const UNASKED = {
  word: "Accept",
  says: (thing) => `Most likely ${thing}.`,
  why: "It looks ordinary. How sure the model is, this policy does not ask.",
};

/** A decision in words: one word, one sentence, the reason. */
export function decision(name, thing = "", policy = null) {
  const found = name === "accept" && policy !== null && !asksClarity(policy) ? UNASKED : DECISIONS[name];
  return { word: found.word, says: found.says(thing), why: found.why };
}

/** A class in a sentence: "an 8" of digits, the name as it is of others. */
export function called(label, model) {
  if (nouns(model) !== "digits") return label;
  return label === "8" ? "an 8" : `a ${label}`;
}

/** What a false-alarm rate means. */
export function meaning(level, noun) {
  if (level <= 0) return "Nothing is ever called unfamiliar.";
  const { count, total } = counted(level);
  const one = Math.round(1 / level);
  const often = Math.abs(1 / one - level) < 0.02 * level ? `1 in ${one.toLocaleString("en")}` :
    `${count} of ${total}`;
  return `At most ${often} ordinary ${noun} on average will be called unfamiliar by mistake. ` +
    "Further right, more strange inputs are caught, and more ordinary ones with them.";
}

/** What the policy promises about accepted answers, and whether it holds at this level. */
export function promise(policy, level) {
  const risk = /(?:^|,)risk=([0-9.e-]+)/.exec(policy.goal ?? "");
  if (!risk) return "";
  const delta = /(?:^|,)delta=([0-9.e-]+)/.exec(policy.goal);
  const sure = delta ? `, with a certainty of ${percent(1 - Number(delta[1]))}` : "";
  const bound = `at most ${rate(Number(risk[1]))} of the accepted ordinary inputs are wrong${sure}`;
  if (level === policy.level) return `Promised at this rate: ${bound}.`;
  return `The promise that ${bound} was tested at ${rate(policy.level)} only; ` +
    "it is not given at this rate.";
}

const SCORES = {
  energy: "Energy",
  unfamiliarity: "Unfamiliarity",
  evidence: "Evidence",
  max_prob: "1 − max p",
  entropy: "Entropy",
  mutual_information: "Mutual information",
  logit_energy: "Energy of the logits",
};

/** A score as people call it. */
export function scoreName(name) {
  const plain = name.replaceAll("_", " ");
  return SCORES[name] ?? plain[0].toUpperCase() + plain.slice(1);
}

/** Names in a sentence: "a", "a and b", "a, b and c". */
export function listed(names) {
  if (names.length < 2) return names.join("");
  return `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}
