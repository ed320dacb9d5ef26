/**
 * Targets and initial distributions: mixtures of Gaussians, typed or drawn, and two bent densities.
 *
 * A target has dim, logZ, logProb(points), score(points) and box, the part of space to show as
 * [low, high] for each coordinate. A mixture also has sample and interval. Points are flat arrays,
 * as in steinis.js.
 */

const LOG_2PI = Math.log(2 * Math.PI);

/** What is wrong with a typed or drawn mixture, in a sentence for the reader. */
export class MixtureError extends Error {}

/**
 * Returns a mixture Σ weight · N(mean, diag(scale²)); log Z is the log of the weights' sum.
 *
 * @param {{weight: number, mean: number[], scale: number[]}[]} components
 */
export function mixture(components) {
  const dim = components[0].mean.length;
  const logWeights = components.map(
    ({ weight, scale }) =>
      Math.log(weight) - scale.reduce((sum, s) => sum + Math.log(s), 0) - (dim * LOG_2PI) / 2,
  );
  const terms = new Float64Array(components.length);

  /** Fills `terms` with the log of each component at a point; returns the log of their sum. */
  function evaluate(points, at) {
    let largest = -Infinity;
    for (let k = 0; k < components.length; k++) {
      const { mean, scale } = components[k];
      let square = 0;
      for (let a = 0; a < dim; a++) square += ((points[at + a] - mean[a]) / scale[a]) ** 2;
      terms[k] = logWeights[k] - square / 2;
      largest = Math.max(largest, terms[k]);
    }
    let sum = 0;
    for (let k = 0; k < components.length; k++) sum += Math.exp(terms[k] - largest);
    return largest + Math.log(sum);
  }

  function logProb(points) {
    return Float64Array.from({ length: points.length / dim }, (_, i) => evaluate(points, i * dim));
  }

  function score(points) {
    const found = new Float64Array(points.length);
    for (let at = 0; at < points.length; at += dim) {
      const total = evaluate(points, at);
      for (let k = 0; k < components.length; k++) {
        const share = Math.exp(terms[k] - total);
        const { mean, scale } = components[k];
        for (let a = 0; a < dim; a++) {
          found[at + a] += (share * (mean[a] - points[at + a])) / scale[a] ** 2;
        }
      }
    }
    return found;
  }

  const total = components.reduce((sum, { weight }) => sum + weight, 0);

  /** Draws n points. */
  function sample(n, random) {
    const points = new Float64Array(n * dim);
    for (let i = 0; i < n; i++) {
      let left = random.uniform() * total;
      let k = 0;
      while (k + 1 < components.length && left > components[k].weight) {
        left -= components[k++].weight;
      }
      const { mean, scale } = components[k];
      for (let a = 0; a < dim; a++) points[i * dim + a] = mean[a] + scale[a] * random.normal();
    }
    return points;
  }

  /** The smallest interval of a coordinate that holds `width` scales around each mean. */
  function interval(width, a = 0) {
    const low = components.map(({ mean, scale }) => mean[a] - width * scale[a]);
    const high = components.map(({ mean, scale }) => mean[a] + width * scale[a]);
    return [Math.min(...low), Math.max(...high)];
  }

  const box = Array.from({ length: dim }, (_, a) => interval(3.5, a));
  return { dim, logZ: Math.log(total), components, logProb, score, sample, interval, box };
}

/** Returns the mixture with its weights divided by their sum, so that log Z = 0. */
export function normalised({ components }) {
  const total = components.reduce((sum, { weight }) => sum + weight, 0);
  return mixture(components.map((part) => ({ ...part, weight: part.weight / total })));
}

/** Pushes a mixture in the plane through (z1, z2) → (z1, bend · z1² + z2 + shift). */
function warped(inner, bend, shift, box) {
  function pullBack(points) {
    return points.map((value, i) =>
      i % 2 === 0 ? value : value - shift - bend * points[i - 1] ** 2,
    );
  }

  function score(points) {
    const found = inner.score(pullBack(points));
    for (let i = 0; i < points.length; i += 2) found[i] -= 2 * bend * points[i] * found[i + 1];
    return found;
  }

  return { dim: 2, logZ: inner.logZ, logProb: (x) => inner.logProb(pullBack(x)), score, box };
}

/** The bent mixture of Section 3. */
export function bentMixture() {
  const scale = [Math.sqrt(0.8), Math.sqrt(0.6)];
  const components = [
    { weight: 0.35, mean: [-2, 0], scale },
    { weight: 0.3, mean: [0, 1], scale },
    { weight: 0.35, mean: [2, 0], scale },
  ];
  const box = [
    [-5.5, 5.5],
    [-4.5, 7],
  ];
  return warped(mixture(components), 0.35, -1.5, box);
}

/** The banana of the landing page: log p̄ = -x1⁴/4 - (x2 - x1²)². */
export function banana() {
  function logProb(points) {
    return Float64Array.from({ length: points.length / 2 }, (_, i) => {
      const [x, y] = [points[2 * i], points[2 * i + 1]];
      return -(x ** 4) / 4 - (y - x * x) ** 2;
    });
  }

  function score(points) {
    const found = new Float64Array(points.length);
    for (let i = 0; i < points.length; i += 2) {
      const away = points[i + 1] - points[i] ** 2;
      found[i] = -(points[i] ** 3) + 4 * points[i] * away;
      found[i + 1] = -2 * away;
    }
    return found;
  }

  const gammaOfFiveQuarters = 0.9064024770554771;
  const logZ = Math.log(2 * Math.SQRT2 * gammaOfFiveQuarters * Math.sqrt(Math.PI));
  const box = [
    [-3.2, 3.2],
    [-2.5, 7],
  ];
  return { dim: 2, logZ, logProb, score, box };
}

/** Where the heights of a drawing stand, and the scale that turns them into a smooth curve. */
export const DRAWING = { low: -6, spacing: 0.5, count: 25, scale: 0.4, highest: 35 };

/** Turns drawn heights into a mixture of narrow Gaussians; its curve goes through the drawing. */
export function drawn(heights) {
  const components = [...heights]
    .map((height, i) => ({
      weight: (height / DRAWING.highest) * DRAWING.spacing,
      mean: [DRAWING.low + i * DRAWING.spacing],
      scale: [DRAWING.scale],
    }))
    .filter(({ weight }) => weight > 0);
  if (!components.length) {
    throw new MixtureError("The drawing is empty. Raise at least one slider.");
  }
  return mixture(components);
}
