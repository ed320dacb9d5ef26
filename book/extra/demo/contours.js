/** Contours of a density in the plane, by marching squares. */

import { extent, polyline } from "./shapes.js";

const CELLS = 72;
/** Contours lie where log p is so far below its peak: at 1, 2 and 3 standard deviations. */
const BELOW_PEAK = [0.5, 2, 4.5];
const remembered = new WeakMap();

/** The contours of a density as the d of a path; kept while density and scales are the same. */
export function contours(density, x, y) {
  const key = [x.low, x.high, y.low, y.high, x(x.low), x(x.high), y(y.low), y(y.high)].join();
  const old = remembered.get(density);
  if (old?.key === key) return old.d;
  const at = (scale, i) => scale.low + ((scale.high - scale.low) * i) / CELLS;
  const side = CELLS + 1;
  const places = new Float64Array(2 * side * side);
  for (let i = 0; i < side * side; i++) {
    places[2 * i] = at(x, i % side);
    places[2 * i + 1] = at(y, Math.floor(i / side));
  }
  const values = density.logProb(places);
  const [, peak] = extent(values);
  const pixel = (column, row) => [x(at(x, column)), y(at(y, row))];
  const d = BELOW_PEAK.map((below) => level(values, side, peak - below, pixel)).join("");
  remembered.set(density, { key, d });
  return d;
}

/** The segments of one contour: in each cell, lines between the crossings on its sides. */
function level(values, side, height, pixel) {
  let d = "";
  for (let row = 0; row + 1 < side; row++) {
    for (let column = 0; column + 1 < side; column++) {
      const corners = [
        [column, row],
        [column + 1, row],
        [column + 1, row + 1],
        [column, row + 1],
      ].map(([i, j]) => [i, j, values[j * side + i] - height]);
      const crossings = [];
      for (let k = 0; k < 4; k++) {
        const [i, j, a] = corners[k];
        const [i2, j2, b] = corners[(k + 1) % 4];
        if (a > 0 === b > 0) continue;
        const share = a / (a - b);
        crossings.push(pixel(i + share * (i2 - i), j + share * (j2 - j)));
      }
      for (let k = 0; k + 1 < crossings.length; k += 2) d += polyline(crossings.slice(k, k + 2));
    }
  }
  return d;
}
