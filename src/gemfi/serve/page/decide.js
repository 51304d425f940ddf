// The decision of a policy, made here so that the slider needs no request. Pure functions.

const MOST = 0.5; // the highest false-alarm rate that the slider offers
export const STEPS = 400;

/**
 * accept, abstain or unfamiliar, as the server decides it at its own level; null without a policy.
 * @param {object} prediction one of the server's answer.
 * @param {object | null} policy of the model.
 * @param {number} level the false-alarm rate.
 */
export function decide(prediction, policy, level) {
  if (policy === null || prediction.p_value === null) return null;
  if (prediction.p_value <= level) return "unfamiliar";
  return isSure(prediction, policy) ? "accept" : "abstain";
}

/** Whether the doubt is small enough for an answer. */
export function isSure(prediction, policy) {
  if (policy.threshold === null) return policy.facts?.coverage !== 0; // no limit, or no hope
  return prediction.doubt !== null && prediction.doubt <= policy.threshold;
}

/** Whether the policy asks how sure the model is; if not, it accepts all that is familiar. */
export function asksClarity(policy) {
  return policy.threshold !== null || /(?:^|,)(?:risk|coverage|error)=/.test(policy.goal ?? "");
}

/** The ends of the slider. */
export function ends(policy) {
  return { least: policy.least_level, most: Math.max(MOST, policy.level) };
}

/** Where a rate or a p-value lies on the slider's logarithmic scale, from 0 to 1. */
export function place(level, policy) {
  const { least, most } = ends(policy);
  const at = Math.log(Math.max(level, least) / least) / Math.log(most / least);
  return Math.min(1, Math.max(0, at));
}

/** The rate at a step of the slider; the step next to the policy's own is exactly that. */
export function levelAt(step, policy) {
  if (step === stepOf(policy.level, policy)) return policy.level;
  const { least, most } = ends(policy);
  if (step >= STEPS) return most;
  return least * (most / least) ** (step / STEPS);
}

/** The step of a rate. */
export function stepOf(level, policy) {
  return Math.round(STEPS * place(level, policy));
}
