/** Axes, marks and labels of the figures, as pieces of SVG. */

const FAR = 10000;

let clips = 0;

// Axes and scales

/** A linear scale from data to pixels, with the ends of the data; far outside, it stands still. */
export function axis([low, high], from, to) {
  const scale = (value) => {
    const pixel = from + ((value - low) / (high - low)) * (to - from);
    return Math.max(-FAR, Math.min(FAR, pixel));
  };
  return Object.assign(scale, { low, high });
}

/** The part of space to show: where the target and q0 are. */
export function rangeOf(target, q0, a) {
  const [low, high] = target.box[a];
  const [low0, high0] = q0.box[a];
  return [Math.min(low, low0), Math.max(high, high0)];
}

/** About `count` round numbers between the ends of an axis. */
export function ticks({ low, high }, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const size = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / size); i * size <= high; i++) {
    found.push(Number((i * size).toPrecision(8)));
  }
  return found;
}

export function xAxis(x, values, top, bottom) {
  const lines = values.map((value) => `M${x(value).toFixed(1)} ${top}V${bottom}`).join("");
  const labels = values.map((value) => text(x(value), bottom + 15, number(value), "middle"));
  return path(lines, "grid") + labels.join("");
}

export function yAxis(y, values, left, right, names = values.map(number)) {
  const lines = values.map((value) => `M${left} ${y(value).toFixed(1)}H${right}`).join("");
  const labels = values.map((value, i) => text(left - 6, y(value) + 4, names[i], "end"));
  return path(lines, "grid") + labels.join("");
}

function number(value) {
  return String(value).replace("-", "−");
}

// Shapes

export function triangle(x, y) {
  return `M${(x - 4).toFixed(1)} ${(y + 3.5).toFixed(1)}h8l-4 -7z`;
}

export function tick(x, y) {
  return `M${x.toFixed(1)} ${(y - 5).toFixed(1)}v10`;
}

export function ring(x, y, r = 2) {
  const half = `${r} ${r} 0 1 0`;
  return `M${(x - r).toFixed(1)} ${y.toFixed(1)}a${half} ${2 * r} 0a${half} ${-2 * r} 0`;
}

export function curve(places, values, x, y) {
  return polyline(Array.from(places, (place, i) => [x(place), y(values[i])]));
}

export function polyline(points) {
  if (!points.length) return "";
  return "M" + points.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L");
}

export function markers(points, x, y, name, shape) {
  const seen = Array.from(points).filter((place) => place >= x.low && place <= x.high);
  return path(seen.map((place) => shape(x(place), y)).join(""), name);
}

export function path(d, name) {
  return d ? `<path class="${name}" d="${d}"/>` : "";
}

export function text(x, y, content, anchor, name = "") {
  return (
    `<text class="${name}" x="${x.toFixed(1)}" y="${y.toFixed(1)}" text-anchor="${anchor}">` +
    `${content}</text>`
  );
}

const ruler = document.createElement("canvas").getContext("2d");

/** The width of a label in pixels; demo.css sets its size. */
function widthOf(label) {
  ruler.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(label).width;
}

/** Names of curves with a piece of their line each, right-aligned at x. */
export function legend(x, y, entries) {
  const parts = [];
  let right = x;
  for (const [name, label, shape] of [...entries].reverse()) {
    parts.push(text(right, y, label, "end"));
    const end = right - widthOf(label) - 6;
    parts.push(path(shape ? shape(end - 6, y - 4) : `M${end - 22} ${y - 4}h22`, name));
    right = end - (shape ? 22 : 34);
  }
  return parts.join("");
}

export function clipBox(x, y, width, height) {
  const id = `demo-clip-${clips++ % 8}`;
  const box = `<rect x="${x}" y="${y}" width="${width}" height="${height}"/>`;
  return { id, markup: `<clipPath id="${id}">${box}</clipPath>` };
}

export function pairs(points) {
  return Array.from({ length: points.length / 2 }, (_, i) => [points[2 * i], points[2 * i + 1]]);
}

export function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return [low, high];
}

export function begin(svg) {
  return Math.max(260, Math.floor(svg.parentElement.clientWidth));
}

export function finish(svg, width, height, alt, parts) {
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  svg.setAttribute("aria-label", alt);
  svg.innerHTML = parts.join("");
}
