/**
 * SteinIS (Algorithm 1 of the paper) in one or two dimensions, with the conventions of steinis_lib.
 *
 * Points are flat Float64Arrays: coordinate a of point i stands at i * dim + a. Nothing here draws
 * random numbers or touches the page.
 */

import { logSumExp, minimum } from "./numbers.js";

const GRID_POINTS = 801;

/** The median of the m(m-1)/2 distances; for an even number, the mean of the two in the middle. */
function medianDistance(points, dim) {
  const m = points.length / dim;
  const distances = new Float64Array((m * (m - 1)) / 2);
  let pair = 0;
  for (let i = 0; i < m; i++) {
    for (let j = 0; j < i; j++) {
      let r = 0;
      for (let a = 0; a < dim; a++) r += (points[i * dim + a] - points[j * dim + a]) ** 2;
      distances[pair++] = Math.sqrt(r);
    }
  }
  distances.sort();
  const middle = distances.length / 2;
  if (distances.length % 2) return distances[Math.floor(middle)];
  return (distances[middle - 1] + distances[middle]) / 2;
}

/** A factor times the paper's rule med² / (2 log(m + 1)), or times 1 where the rule gives 0. */
export function bandwidth(leaders, dim, multiplier) {
  const m = leaders.length / dim;
  const h = medianDistance(leaders, dim) ** 2 / (2 * Math.log(m + 1));
  return multiplier * (h > 0 ? h : 1);
}

/** Builds the map y + ε φ(y) from the leaders alone. */
function buildMap(target, leaders, epsilon, multiplier) {
  return {
    dim: target.dim,
    leaders,
    scores: target.score(leaders),
    h: bandwidth(leaders, target.dim, multiplier),
    epsilon,
  };
}

/** Moves points by a map; returns their new places and the exact determinants of its Jacobian. */
function applyMap(map, points) {
  return map.dim === 1 ? applyOnLine(map, points) : applyInPlane(map, points);
}

function applyOnLine({ leaders, scores, h, epsilon }, points) {
  const m = leaders.length;
  const moved = new Float64Array(points.length);
  const determinants = new Float64Array(points.length);
  for (let i = 0; i < points.length; i++) {
    let phi = 0;
    let slope = 0;
    for (let j = 0; j < m; j++) {
      const away = points[i] - leaders[j];
      const k = Math.exp((-away * away) / h);
      const pull = scores[j] + (2 / h) * away;
      phi += k * pull;
      slope += k * (2 / h) * (1 - away * pull);
    }
    moved[i] = points[i] + (epsilon * phi) / m;
    determinants[i] = 1 + (epsilon * slope) / m;
  }
  return { moved, determinants };
}

function applyInPlane({ leaders, scores, h, epsilon }, points) {
  const m = leaders.length / 2;
  const moved = new Float64Array(points.length);
  const determinants = new Float64Array(points.length / 2);
  for (let i = 0; i < points.length; i += 2) {
    let phi1 = 0;
    let phi2 = 0;
    let total = 0;
    let j11 = 0;
    let j12 = 0;
    let j21 = 0;
    let j22 = 0;
    for (let j = 0; j < 2 * m; j += 2) {
      const away1 = points[i] - leaders[j];
      const away2 = points[i + 1] - leaders[j + 1];
      const k = Math.exp(-(away1 * away1 + away2 * away2) / h);
      const pull1 = scores[j] + (2 / h) * away1;
      const pull2 = scores[j + 1] + (2 / h) * away2;
      phi1 += k * pull1;
      phi2 += k * pull2;
      total += k;
      j11 -= k * pull1 * away1;
      j12 -= k * pull1 * away2;
      j21 -= k * pull2 * away1;
      j22 -= k * pull2 * away2;
    }
    const scale = (epsilon * 2) / (h * m);
    moved[i] = points[i] + (epsilon * phi1) / m;
    moved[i + 1] = points[i + 1] + (epsilon * phi2) / m;
    const first = 1 + scale * (total + j11);
    const second = 1 + scale * (total + j22);
    determinants[i / 2] = first * second - scale * j12 * (scale * j21);
  }
  return { moved, determinants };
}

/**
 * Starts a run from given particles.
 *
 * @param {object} target Has dim, logZ, logProb(points) and score(points).
 * @param {object} q0 Normalised; has dim and logProb(points), and on the line interval().
 * @param {Float64Array} leaders At least two.
 * @param {Float64Array} followers At least two, independent draws from q0.
 * @param {{epsilon: number, multiplier: number}} settings ε, and the factor on the bandwidth rule.
 */
export function startRun(target, q0, leaders, followers, settings) {
  return {
    ...settings,
    target,
    transition: 0,
    leaders,
    followers,
    logQ: q0.logProb(followers),
    grid: target.dim === 1 ? startGrid(q0) : null,
    smallestDeterminant: Infinity, // so far, at the followers
    folds: 0, // followers that met a determinant that is not positive, so far
    gridFolds: 0,
  };
}

/** On the line: evenly spaced points with the weights of q0, for expectations under q_ℓ. */
function startGrid(q0) {
  const [low, high] = q0.interval(8);
  const points = Float64Array.from(
    { length: GRID_POINTS },
    (_, i) => low + ((high - low) * i) / (GRID_POINTS - 1),
  );
  const logQ = q0.logProb(points);
  const total = logSumExp(logQ);
  return { points, logQ, weights: logQ.map((value) => Math.exp(value - total)) };
}

/** Takes one transition and returns the new run. Throws a RangeError if a particle overflows. */
export function step(run) {
  const map = buildMap(run.target, run.leaders, run.epsilon, run.multiplier);
  const leaders = applyMap(map, run.leaders).moved;
  const { moved: followers, determinants } = applyMap(map, run.followers);
  if (!leaders.every(Number.isFinite) || !followers.every(Number.isFinite)) {
    throw new RangeError(
      `A particle left the range of numbers in transition ${run.transition + 1}. Lower ε.`,
    );
  }
  let { grid, gridFolds } = run;
  if (grid) {
    const pushed = applyMap(map, grid.points);
    grid = { ...grid, points: pushed.moved, logQ: pushForward(grid.logQ, pushed.determinants) };
    gridFolds += countFolds(pushed.determinants);
  }
  return {
    ...run,
    transition: run.transition + 1,
    leaders,
    followers,
    logQ: pushForward(run.logQ, determinants),
    grid,
    smallestDeterminant: Math.min(run.smallestDeterminant, minimum(determinants)),
    folds: run.folds + countFolds(determinants),
    gridFolds,
  };
}

function pushForward(logQ, determinants) {
  return logQ.map((value, i) => value - Math.log(Math.abs(determinants[i])));
}

function countFolds(determinants) {
  return determinants.reduce((count, value) => count + (value > 0 ? 0 : 1), 0);
}
