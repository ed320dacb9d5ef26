/** Sums and extremes of arrays of numbers. */

/** log Σ exp of the values, without overflow. */
export function logSumExp(values) {
  const largest = maximum(values);
  if (!Number.isFinite(largest)) return largest;
  return largest + Math.log(values.reduce((sum, value) => sum + Math.exp(value - largest), 0));
}

export function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

export function standardDeviation(values) {
  const centre = mean(values);
  const squares = values.reduce((sum, value) => sum + (value - centre) ** 2, 0);
  return Math.sqrt(squares / (values.length - 1));
}

export function maximum(values) {
  return values.reduce((most, value) => Math.max(most, value), -Infinity);
}

export function minimum(values) {
  return values.reduce((least, value) => Math.min(least, value), Infinity);
}
