/**
 * A seeded random generator: the same seed gives the same numbers in every browser.
 *
 * Bits come from sfc32 by Chris Doty-Humphrey, normal numbers from the Box-Muller formula.
 */

/** Spreads the bits of a 32-bit integer, so that close seeds start far apart. */
function scramble(value) {
  let z = (value + 0x9e3779b9) | 0;
  z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
  z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
  return (z ^ (z >>> 15)) | 0;
}

/**
 * Returns a generator for a seed and a stream; different streams of one seed are unrelated.
 *
 * @param {number} seed A whole number.
 * @param {number} stream A whole number, for instance 1 for leaders and 2 for followers.
 */
export function randomGenerator(seed, stream = 0) {
  let a = scramble(seed);
  let b = scramble(a ^ stream);
  let c = scramble(b);
  let counter = 1;

  function bits() {
    const sum = (((a + b) | 0) + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + sum) | 0;
    return sum >>> 0;
  }
  for (let i = 0; i < 12; i++) bits(); // the first numbers still show the seed

  /** Returns a number between 0 and 1, with 53 random bits; never 0 or 1. */
  function uniform() {
    return ((bits() >>> 5) * 67108864 + (bits() >>> 6) + 0.5) / 9007199254740992;
  }

  let spare = null;
  /** Returns a draw from N(0, 1). */
  function normal() {
    if (spare !== null) {
      const kept = spare;
      spare = null;
      return kept;
    }
    const radius = Math.sqrt(-2 * Math.log(uniform()));
    const angle = 2 * Math.PI * uniform();
    spare = radius * Math.sin(angle);
    return radius * Math.cos(angle);
  }
  return { uniform, normal };
}
