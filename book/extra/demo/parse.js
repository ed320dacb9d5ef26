/** Reads mixtures of Gaussians that the reader types. */

import { MixtureError, mixture } from "./targets.js";

/** The most components of a typed mixture, the largest |mean|, and the bounds of a scale. */
const LIMITS = { components: 20, mean: 30, smallest: 0.05, largest: 20 };

const EXAMPLES = {
  1: "0.3 N(-2, 1) + 0.7 N(1, 0.5)",
  2: "0.3 N((-2, 0), 1) + 0.7 N((1, 1), 0.5)",
};
const TOKEN = /\s*(?:((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|([A-Za-z]+)|(\S))/y;

/** Splits text into numbers, words and signs, each with its place. */
function tokens(text) {
  const found = [];
  TOKEN.lastIndex = 0;
  for (let match = TOKEN.exec(text); match; match = TOKEN.exec(text)) {
    const [whole, number, word, sign] = match;
    const value = number ?? word ?? sign;
    const kind = number !== undefined ? "number" : word !== undefined ? "word" : "sign";
    found.push({ kind, value, at: match.index + whole.length - value.length });
  }
  return found;
}

/**
 * Reads a mixture such as "0.3 N(-2, 1) + 0.7 N(1, 0.5)": N(mean, standard deviation). In the plane
 * a component is N((x, y), s), or N((x, y), (s1, s2)). A missing weight is 1.
 *
 * @param {string} text
 * @param {number} dim 1 or 2.
 * @throws {MixtureError} With a sentence for the reader.
 */
export function parseMixture(text, dim) {
  const list = tokens(text.replaceAll("−", "-").replaceAll("·", "*"));
  const example = `For instance: ${EXAMPLES[dim]}`;
  if (!list.length) throw new MixtureError(`Type a mixture. ${example}`);
  let next = 0;

  function fail(expected) {
    const token = list[next];
    const found = token ? `"${token.value}" at character ${token.at + 1}` : "the end of the text";
    throw new MixtureError(`Expected ${expected}, but found ${found}. ${example}`);
  }
  const isNext = (value) => list[next]?.value === value;
  function take(value, meaning = `"${value}"`) {
    if (!isNext(value)) fail(meaning);
    next += 1;
  }
  function number(meaning) {
    let sign = 1;
    if (isNext("-") || isNext("+")) sign = list[next++].value === "-" ? -1 : 1;
    if (list[next]?.kind !== "number") fail(meaning);
    return sign * Number(list[next++].value);
  }
  function numbers(meaning) {
    if (!isNext("(")) return [number(meaning)];
    next += 1;
    const values = [number(meaning)];
    while (isNext(",")) {
      next += 1;
      values.push(number(meaning));
    }
    take(")", 'a closing bracket ")"');
    return values;
  }
  function component() {
    let weight = 1;
    if (!isNext("N")) {
      weight = number("a weight or N");
      if (isNext("*")) next += 1;
    }
    take("N", "N");
    take("(", 'an opening bracket "("');
    const mean = numbers("a mean");
    take(",", "a comma and a standard deviation");
    const scale = numbers("a standard deviation");
    take(")", 'a closing bracket ")"');
    return { weight, mean, scale };
  }

  const components = [component()];
  while (next < list.length) {
    take("+", '"+" or the end of the text');
    components.push(component());
  }
  return mixture(check(components, dim, example));
}

/** Refuses components that do not fit; in the plane, repeats a single scale. */
function check(components, dim, example) {
  if (components.length > LIMITS.components) {
    throw new MixtureError(
      `At most ${LIMITS.components} components are allowed, but there are ${components.length}.`,
    );
  }
  return components.map(({ weight, mean, scale }, i) => {
    const name = `component ${i + 1}`;
    if (mean.length !== dim || ![1, dim].includes(scale.length)) {
      const shape = dim === 1 ? "N(mean, s) on the line" : "N((x, y), s) in the plane";
      throw new MixtureError(`Write ${shape}; ${name} does not fit. ${example}`);
    }
    if (!(weight > 0)) {
      throw new MixtureError(`Weights must be positive, but ${name} has ${weight}.`);
    }
    if (mean.some((value) => Math.abs(value) > LIMITS.mean)) {
      throw new MixtureError(`Means must lie within ±${LIMITS.mean}, but ${name} has ${mean}.`);
    }
    if (scale.some((value) => !(value >= LIMITS.smallest && value <= LIMITS.largest))) {
      const range = `${LIMITS.smallest} and ${LIMITS.largest}`;
      throw new MixtureError(
        `Standard deviations must lie between ${range}, but ${name} has ${scale}.`,
      );
    }
    return { weight, mean, scale: scale.length === dim ? scale : [scale[0], scale[0]] };
  });
}
