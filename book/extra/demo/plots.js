/**
 * The demo's figures as SVG. Colours come from demo.css, so that they follow light and dark mode;
 * dashes, shapes and labels tell the curves apart without colour.
 *
 * Each function fills an <svg> element. Sizes are in pixels of the page, so that text is readable
 * on a phone.
 */

import { contours } from "./contours.js";
import {
  axis,
  begin,
  clipBox,
  curve,
  extent,
  finish,
  legend,
  markers,
  pairs,
  path,
  polyline,
  rangeOf,
  ring,
  text,
  tick,
  ticks,
  triangle,
  xAxis,
  yAxis,
} from "./shapes.js";

const NARROW = 480;
const LEFT = 44;
const RIGHT = 12;

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
