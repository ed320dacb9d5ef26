/** What the page shows of a run: KL, KSD², the weights and what they say. */

import { logSumExp, maximum, mean, standardDeviation } from "./numbers.js";
import { bandwidth } from "./steinis.js";

/** Everything that the page shows of a run. Throws a RangeError if all weights are zero. */
export function measure(run) {
  const logW = logWeights(run);
  if (!Number.isFinite(logSumExp(logW))) {
    throw new RangeError(
      `All weights are zero after transition ${run.transition}: no follower is near the target. ` +
        "Lower ε.",
    );
  }
  const kl = run.grid ? exactKl(run) : klFromFollowers(run, logW);
  return {
    transition: run.transition,
    logW,
    ...kl,
    ksdSquared: ksdSquared(run.target, run.followers, run.multiplier, run.leaders),
    essFraction: effectiveSampleSize(logW) / logW.length,
    paretoK: paretoK(logW),
    logZ: logMean(logW),
    logZError: logZError(logW),
    smallestDeterminant: run.smallestDeterminant,
    folds: run.folds,
    folded: run.folds + run.gridFolds > 0,
  };
}

/** log w = log p̄ - log q_ℓ at each follower. */
function logWeights(run) {
  return run.target.logProb(run.followers).map((value, i) => value - run.logQ[i]);
}

/** KL(q_ℓ‖p) by quadrature under q0, and no error; valid while no map folds. */
function exactKl({ target, grid }) {
  const logP = target.logProb(grid.points);
  let kl = target.logZ;
  for (let i = 0; i < logP.length; i++) kl += grid.weights[i] * (grid.logQ[i] - logP[i]);
  return { kl, klError: 0 };
}

/** KL(q_ℓ‖p) = log Z - E[log w], estimated from the followers, with its standard error. */
function klFromFollowers({ target }, logW) {
  return {
    kl: target.logZ - mean(logW),
    klError: standardDeviation(logW) / Math.sqrt(logW.length),
  };
}

/** KSD² as a V-statistic: the mean of κ_p over all pairs, with the bandwidth of the leaders. */
function ksdSquared(target, points, multiplier, leaders) {
  const { dim } = target;
  const n = points.length / dim;
  const h = bandwidth(leaders, dim, multiplier);
  const scores = target.score(points);
  let total = 0;
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      let r = 0;
      let product = 0;
      let along = 0;
      for (let a = 0; a < dim; a++) {
        const s = scores[i * dim + a];
        const t = scores[j * dim + a];
        const away = points[i * dim + a] - points[j * dim + a];
        r += away * away;
        product += s * t;
        along += (s - t) * away;
      }
      const pair = Math.exp(-r / h) * (product + (2 / h) * (along + dim) - (4 * r) / (h * h));
      total += i === j ? pair : 2 * pair;
    }
  }
  return total / (n * n);
}

/** log of the mean of the weights. */
function logMean(logW) {
  return logSumExp(logW) - Math.log(logW.length);
}

/** The standard error of log Ẑ by the delta method. */
function logZError(logW) {
  const centre = logMean(logW);
  const relative = logW.map((value) => Math.exp(value - centre));
  return standardDeviation(relative) / Math.sqrt(logW.length);
}

/** (Σw)² / Σw². */
function effectiveSampleSize(logW) {
  return Math.exp(2 * logSumExp(logW) - logSumExp(logW.map((value) => 2 * value)));
}

const SMALLEST = Math.log(2.2250738585072014e-308);
const FEWEST_IN_TAIL = 5;

/** Pareto-k̂ of the weights' tail: ∞ if the tail is too short, -∞ if all weights are equal. */
export function paretoK(logW) {
  const n = logW.length;
  const largest = maximum(logW);
  const ordered = logW.map((value) => value - largest).sort();
  if (ordered[0] === ordered[n - 1]) return -Infinity;
  const inTail = Math.ceil(Math.min(n / 5, 3 * Math.sqrt(n)));
  const threshold = Math.max(ordered[n - inTail - 1], SMALLEST);
  const tail = ordered.filter((value) => value > threshold);
  if (tail.length < FEWEST_IN_TAIL) return Infinity;
  return paretoShape(tail.map((value) => Math.exp(value) - Math.exp(threshold)));
}

/** The shape of a generalised Pareto distribution (Zhang & Stephens 2009), x in rising order. */
function paretoShape(x) {
  const n = x.length;
  const m = 30 + Math.floor(Math.sqrt(n));
  const quartile = x[Math.floor(n / 4 + 0.5) - 1];
  const shapeAt = (theta) => mean(x.map((value) => Math.log1p(-theta * value)));
  const thetas = Float64Array.from(
    { length: m },
    (_, i) => 1 / x[n - 1] + (1 - Math.sqrt(m / (i + 0.5))) / (3 * quartile),
  );
  const logLikelihood = thetas.map((theta) => {
    const k = shapeAt(theta);
    return n * (Math.log(-theta / k) - k - 1);
  });
  const total = logSumExp(logLikelihood);
  const weights = logLikelihood
    .map((value) => Math.exp(value - total))
    .map((weight) => (weight >= 10 * Number.EPSILON ? weight : 0));
  const best = mean(weights.map((weight, i) => weight * thetas[i])) / mean(weights);
  return (n * shapeAt(best) + 10 * 0.5) / (n + 10);
}
