/**
 * The demo's figures as SVG. Colours come from demo.css, so that they follow light and dark mode;
 * dashes, shapes and labels tell the curves apart without colour.
 *
 * Each function fills an <svg> element. Sizes are in pixels of the page, so that text is readable
 * on a phone.
 */

const NARROW = 480;
const LEFT = 44;
const RIGHT = 12;
const FAR = 10000;

let clips = 0;

/** Draws p, q0 and the exact q_ℓ on the line, the particles below, and the log-weights. */
export function drawLine(svg, run, q0, measured, alt) {
  const width = begin(svg);
  const heights = { curves: 200, strips: 44, weights: width < NARROW ? 140 : 160 };
  const { target, grid } = run;
  const x = axis(rangeOf(target, q0, 0), LEFT, width - RIGHT);
  const places = Float64Array.from({ length: 401 }, (_, i) => x.low + ((x.high - x.low) * i) / 400);
  const p = target.logProb(places).map((value) => Math.exp(value - target.logZ));
  const start = q0.logProb(places).map(Math.exp);
  const legendAt = width < NARROW ? 30 : 12; // on a phone, in a row of its own
  const top = legendAt + 14;
  const density = grid.logQ.map(Math.exp);
  const known = Math.max(...p, ...start);
  const tallest = 1.05 * Math.max(known, Math.min(Math.max(...density), 2 * known));
  const y = axis([0, tallest], top + heights.curves, top);
  const clip = clipBox(LEFT, top, width - LEFT - RIGHT, heights.curves);
  const q = Array.from(grid.points, (place, i) => {
    return [x(place), y(Math.min(density[i], 10 * tallest))];
  });
  const parts = [
    clip.markup,
    text(4, 12, "density", "start"),
    legend(width - RIGHT, legendAt, [
      ["target", "target p"],
      ["q0", "start q0"],
      ["proposal", "proposal q"],
    ]),
    yAxis(y, ticks(y, 4), LEFT, width - RIGHT),
    `<g clip-path="url(#${clip.id})">`,
    path(curve(places, start, x, y), "q0"),
    path(curve(places, p, x, y), "target"),
    path(polyline(q), "proposal"),
    "</g>",
  ];
  const strips = top + heights.curves + 8;
  parts.push(
    xAxis(x, ticks(x, 6), top, strips + heights.strips + heights.weights + 22),
    markers(run.leaders, x, strips + 10, "leaders", triangle),
    markers(run.followers, x, strips + 30, "followers", tick),
    text(LEFT + 4, strips + 6, "leaders", "start", "halo"),
    text(LEFT + 4, strips + 28, "followers", "start", "halo"),
  );
  const weightsTop = strips + heights.strips + 22;
  parts.push(weightPanel(run, measured, x, weightsTop, heights.weights, width));
  finish(svg, width, weightsTop + heights.weights + 24, alt, parts);
}

/** Draws log w against the place of each follower, with log Ẑ and the truth. */
function weightPanel(run, measured, x, top, height, width) {
  const { logZ: truth } = run.target;
  const { logW, logZ } = measured;
  const [least, most] = extent(logW);
  const low = Math.max(Math.min(least, truth, logZ) - 0.3, truth - 10);
  const high = Math.min(Math.max(most, truth, logZ) + 0.3, Math.max(truth, logZ) + 10);
  const y = axis([low, Math.max(high, low + 1)], top + height, top);
  const dots = Array.from(run.followers, (place, i) => [place, logW[i]])
    .filter(([place]) => place >= x.low && place <= x.high)
    .map(([place, value]) => ring(x(place), y(Math.min(Math.max(value, y.low), y.high))));
  const line = (value) => `M${LEFT} ${y(value).toFixed(1)}H${width - RIGHT}`;
  return [
    text(4, top - 10, "log weights", "start"),
    yAxis(y, ticks(y, 4), LEFT, width - RIGHT),
    path(line(truth), "truth"),
    path(line(Math.min(Math.max(logZ, y.low), y.high)), "estimate"),
    path(dots.join(""), "weights"),
    legend(width - RIGHT, top - 10, [
      ["truth", "log Z"],
      ["estimate", "estimate"],
    ]),
  ].join("");
}

/** Draws contours of p and q0 in the plane, the leaders, and the followers by their weight. */
export function drawPlane(svg, run, q0, measured, alt) {
  const width = begin(svg);
  const xRange = rangeOf(run.target, q0, 0);
  const yRange = rangeOf(run.target, q0, 1);
  const top = 44;
  const inner = width - LEFT - RIGHT;
  const height = Math.min(inner * ((yRange[1] - yRange[0]) / (xRange[1] - xRange[0])), 520);
  const x = axis(xRange, LEFT, width - RIGHT);
  const y = axis(yRange, top + height, top);
  const clip = clipBox(LEFT, top, inner, height);
  const relative = measured.logW.map((value) => Math.exp(value - measured.logZ));
  const chosen = (low, high) => (_, i) => relative[i] > low && relative[i] <= high;
  const followers = pairs(run.followers);
  const rings = (list, size) =>
    list.map(([a, b]) => ring(x(a), y(b), size)).join("");
  const parts = [
    clip.markup,
    legend(width - RIGHT, 12, [
      ["target", "target p"],
      ["q0", "start q0"],
    ]),
    legend(width - RIGHT, 30, [
      ["leaders", "leaders", triangle],
      ["followers", "followers; size: weight", (a, b) => ring(a, b, 3)],
    ]),
    yAxis(y, ticks(y, 6), LEFT, width - RIGHT),
    xAxis(x, ticks(x, 6), top, top + height),
    `<g clip-path="url(#${clip.id})">`,
    path(contours(q0, x, y), "q0"),
    path(contours(run.target, x, y), "target"),
    path(rings(followers.filter(chosen(-1, 0.3)), 1.2), "followers"),
    path(rings(followers.filter(chosen(0.3, 2)), 2.6), "followers"),
    path(rings(followers.filter(chosen(2, Infinity)), 5), "followers heavy"),
    path(pairs(run.leaders).map(([a, b]) => triangle(x(a), y(b))).join(""), "leaders"),
    "</g>",
  ];
  finish(svg, width, top + height + 24, alt, parts);
}

/** Draws KL and KSD² against the transitions, on a logarithmic axis. */
export function drawHistory(svg, history, alt) {
  const width = begin(svg);
  const [top, height] = [26, 130];
  const series = [
    ["proposal", "KL", history.filter(({ folded }) => !folded).map((m) => [m.transition, m.kl])],
    ["ksd", "KSD²", history.map((m) => [m.transition, m.ksdSquared])],
  ].map(([name, label, points]) => [name, label, points.filter(([, value]) => value > 1e-6)]);
  const values = series.flatMap(([, , points]) => points.map(([, value]) => Math.log10(value)));
  const [least, most] = values.length ? extent(values) : [-1, 0];
  const x = axis([0, Math.max(10, history.at(-1).transition)], LEFT, width - RIGHT);
  const lowest = Math.floor(least);
  const y = axis([lowest, Math.max(Math.ceil(most), lowest + 1)], top + height, top);
  const decades = Array.from({ length: y.high - y.low + 1 }, (_, i) => y.low + i);
  const names = decades.map((value) => String(Number((10 ** value).toPrecision(1))));
  const parts = [
    text(4, 12, "nats, log axis", "start"),
    legend(width - RIGHT, 12, series.map(([name, label]) => [name, label])),
    yAxis(y, decades, LEFT, width - RIGHT, names),
    xAxis(x, ticks(x, 6).filter(Number.isInteger), top, top + height),
    text((LEFT + width - RIGHT) / 2, top + height + 32, "transitions", "middle"),
    ...series.map(([name, , points]) =>
      path(polyline(points.map(([t, value]) => [x(t), y(Math.log10(value))])), name),
    ),
    ...series
      .filter(([, , points]) => points.length)
      .map(([name, , points]) => {
        const [t, value] = points.at(-1);
        return path(ring(x(t), y(Math.log10(value)), 2), name);
      }),
  ];
  finish(svg, width, top + height + 38, alt, parts);
}

// Axes and scales

/** A linear scale from data to pixels, with the ends of the data; far outside, it stands still. */
function axis([low, high], from, to) {
  const scale = (value) => {
    const pixel = from + ((value - low) / (high - low)) * (to - from);
    return Math.max(-FAR, Math.min(FAR, pixel));
  };
  return Object.assign(scale, { low, high });
}

/** The part of space to show: where the target and q0 are. */
function rangeOf(target, q0, a) {
  const [low, high] = target.box[a];
  const [low0, high0] = q0.box[a];
  return [Math.min(low, low0), Math.max(high, high0)];
}

/** About `count` round numbers between the ends of an axis. */
function ticks({ low, high }, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const size = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / size); i * size <= high; i++) {
    found.push(Number((i * size).toPrecision(8)));
  }
  return found;
}

function xAxis(x, values, top, bottom) {
  const lines = values.map((value) => `M${x(value).toFixed(1)} ${top}V${bottom}`).join("");
  const labels = values.map((value) => text(x(value), bottom + 15, number(value), "middle"));
  return path(lines, "grid") + labels.join("");
}

function yAxis(y, values, left, right, names = values.map(number)) {
  const lines = values.map((value) => `M${left} ${y(value).toFixed(1)}H${right}`).join("");
  const labels = values.map((value, i) => text(left - 6, y(value) + 4, names[i], "end"));
  return path(lines, "grid") + labels.join("");
}

function number(value) {
  return String(value).replace("-", "−");
}

// Shapes

function triangle(x, y) {
  return `M${(x - 4).toFixed(1)} ${(y + 3.5).toFixed(1)}h8l-4 -7z`;
}

function tick(x, y) {
  return `M${x.toFixed(1)} ${(y - 5).toFixed(1)}v10`;
}

function ring(x, y, r = 2) {
  const half = `${r} ${r} 0 1 0`;
  return `M${(x - r).toFixed(1)} ${y.toFixed(1)}a${half} ${2 * r} 0a${half} ${-2 * r} 0`;
}

function curve(places, values, x, y) {
  return polyline(Array.from(places, (place, i) => [x(place), y(values[i])]));
}

function polyline(points) {
  if (!points.length) return "";
  return "M" + points.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L");
}

function markers(points, x, y, name, shape) {
  const seen = Array.from(points).filter((place) => place >= x.low && place <= x.high);
  return path(seen.map((place) => shape(x(place), y)).join(""), name);
}

function path(d, name) {
  return d ? `<path class="${name}" d="${d}"/>` : "";
}

function text(x, y, content, anchor, name = "") {
  return (
    `<text class="${name}" x="${x.toFixed(1)}" y="${y.toFixed(1)}" text-anchor="${anchor}">` +
    `${content}</text>`
  );
}

/** Names of curves with a piece of their line each, right-aligned at x. */
function legend(x, y, entries) {
  const parts = [];
  let right = x;
  for (const [name, label, shape] of [...entries].reverse()) {
    const size = label.length * 6.2;
    parts.push(text(right, y, label, "end"));
    const end = right - size - 6;
    parts.push(path(shape ? shape(end - 6, y - 4) : `M${end - 22} ${y - 4}h22`, name));
    right = end - (shape ? 22 : 34);
  }
  return parts.join("");
}

function clipBox(x, y, width, height) {
  const id = `demo-clip-${clips++ % 8}`;
  const box = `<rect x="${x}" y="${y}" width="${width}" height="${height}"/>`;
  return { id, markup: `<clipPath id="${id}">${box}</clipPath>` };
}

function pairs(points) {
  return Array.from({ length: points.length / 2 }, (_, i) => [points[2 * i], points[2 * i + 1]]);
}

function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return [low, high];
}

function begin(svg) {
  return Math.max(260, Math.floor(svg.parentElement.clientWidth));
}

function finish(svg, width, height, alt, parts) {
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  svg.setAttribute("aria-label", alt);
  svg.innerHTML = parts.join("");
}

// Contours by marching squares

const CELLS = 72;
/** Contours lie where log p is so far below its peak: at 1, 2 and 3 standard deviations. */
const BELOW_PEAK = [0.5, 2, 4.5];
const remembered = new WeakMap();

/** The contours of a density as the d of a path; kept while density and scales are the same. */
function contours(density, x, y) {
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
