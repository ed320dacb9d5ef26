/** What the readings of a run say, in numbers and words. */

/** Name, value and remark of each quantity that `measure` found. */
export function readings(now, truth) {
  const off = (now.logZ - truth) / now.logZError;
  const beside = now.folded ? "a map folded beside them" : "no fold met";
  return [
    [
      "KL(q‖p)",
      now.folded ? "–" : withError(now.kl, now.klError),
      now.folded ? "unknown, as a map folded" : now.klError ? "from the followers" : "exact",
    ],
    ["KSD²", round(now.ksdSquared), "V-statistic"],
    ["ESS/|B|", round(now.essFraction), "1 is best"],
    ["k̂", round(now.paretoK), remarkOnTail(now.paretoK)],
    [
      "log Ẑ",
      withError(now.logZ, now.logZError),
      now.logZError > 1e-9 ? `${round(Math.abs(off))} s.e. off` : "",
    ],
    ["log Z", round(truth, 3), "the truth"],
    [
      "smallest determinant",
      now.transition ? round(now.smallestDeterminant) : "–",
      now.folds ? `${now.folds} folds met` : beside,
    ],
  ];
}

/** A few digits, one more from 10 on, with a proper minus sign. */
export function round(value, digits = 2) {
  if (value === Infinity) return "∞";
  if (value === -Infinity) return "−∞";
  if (Math.abs(value) < 5e-7) return "0";
  const more = Math.abs(value) >= 10 ? digits + 1 : digits;
  return String(Number(value.toPrecision(more))).replace("-", "−");
}

/** A value and its error, both with as many decimals as give the error two digits. */
function withError(value, error) {
  if (!(error > 1e-6)) return round(value);
  const decimals = Math.max(0, 1 - Math.floor(Math.log10(error)));
  return [value, error].map((x) => x.toFixed(decimals).replace("-", "−")).join(" ± ");
}

function remarkOnTail(k) {
  if (k === Infinity) return "too few followers to tell";
  if (k === -Infinity) return "all weights are equal";
  return k > 0.7 ? "above 0.7: do not trust log Ẑ" : "below 0.7";
}

/** A reading as a sentence. */
export function inWords([name, value, remark]) {
  return `${name}: ${value}${remark ? `, ${remark}` : ""}.`;
}
