// The server: what is asked, what can go wrong, and only the newest answer counts.

const TOKEN = "gemfi-token";
const PATIENCE = 30000; // milliseconds
const MOST_TRIES = 5; // when the server says that it is busy

/** What went wrong, as the page tells it. `status` is 0 where no answer came at all. */
export class Problem extends Error {
  constructor(status, message, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** The token of this tab. */
export function setToken(token) {
  // A header cannot hold other signs, and no token has them: the server shall say that it is wrong.
  sessionStorage.setItem(TOKEN, token.replace(/[^\x21-\x7e]/g, "?"));
}

/** What the server says about its model. */
export function askModel() {
  return ask("/v1/model", {});
}

/** The prediction of one input, in detail. `body` is JSON text. */
export async function askPrediction(body) {
  const headers = { "Content-Type": "application/json" };
  const answer = await ask("/v1/predict?detail=true", { method: "POST", headers, body });
  return answer.predictions[0];
}

async function ask(path, options) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) };
  const signal = AbortSignal.timeout(PATIENCE);
  let response;
  try {
    response = await fetch(path, { ...options, headers, signal });
    if (response.ok) return await response.json();
  } catch {
    throw new Problem(0, "The server does not answer.");
  }
  throw await problemOf(response);
}

async function problemOf(response) {
  const wait = Number(response.headers.get("Retry-After")) || 0;
  const told = await response.json().catch(() => ({}));
  const { message, where } = told.error ?? {};
  const text = message ?? `The server answered ${response.status}.`;
  return new Problem(response.status, where ? `${text} (${where})` : text, wait);
}

/**
 * Asks about the newest input alone: one request at a time, after a short rest, and an answer that
 * is no longer wanted is dropped.
 */
export class Newest {
  #wanted = null;
  #isBusy = false;
  #round = 0;
  #timer = 0;

  /**
   * @param {(prediction: object, input: object) => void} onAnswer
   * @param {(problem: Problem, input: object) => void} onProblem
   * @param {number} rest milliseconds without a change before it asks.
   */
  constructor(onAnswer, onProblem, rest = 60) {
    this.onAnswer = onAnswer;
    this.onProblem = onProblem;
    this.rest = rest;
  }

  /** Ask about an input: `{ body: () => string }`, kept until there is an answer. */
  want(input) {
    this.#wanted = input;
    this.#round += 1;
    if (!this.#timer && !this.#isBusy) this.#later(this.rest);
  }

  /** Want nothing any more. */
  forget() {
    this.#wanted = null;
    this.#round += 1;
    clearTimeout(this.#timer);
    this.#timer = 0;
  }

  #later(wait) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      this.#send();
    }, wait);
  }

  async #send() {
    const input = this.#wanted;
    if (input === null || this.#isBusy) return;
    const round = this.#round;
    this.#isBusy = true;
    let again = -1;
    try {
      const prediction = await askPrediction(input.body());
      if (input === this.#wanted || this.#isRelated(input)) this.onAnswer(prediction, input);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (this.#wanted !== null) this.onProblem(problem, input);
      if (problem.status === 429 && (input.tries ?? 0) < MOST_TRIES) {
        input.tries = (input.tries ?? 0) + 1;
        again = 1000 * Math.max(1, problem.retryAfter);
      }
    } finally {
      this.#isBusy = false;
    }
    if (this.#wanted === null) return;
    if (round !== this.#round) this.#later(Math.max(0, again));
    else if (again >= 0) this.#later(again);
  }

  /** An answer about an earlier moment of the same drawing is better than none. */
  #isRelated(input) {
    return this.#wanted !== null && input.source === this.#wanted.source;
  }
}
