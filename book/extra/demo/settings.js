/** The settings of the demo: presets, checks of what the reader enters, and the address. */

import { parseMixture } from "./parse.js";
import { DRAWING, MixtureError, banana, bentMixture, drawn, normalised } from "./targets.js";

/** The kinds of target; `typed` ones are read from the text of a mixture. */
export const TARGETS = {
  line: { label: "mixture on the line, typed", dim: 1, typed: true },
  drawn: { label: "density on the line, drawn by hand", dim: 1 },
  plane: { label: "mixture in the plane, typed", dim: 2, typed: true },
  bent: { label: "bent mixture in the plane", dim: 2, make: bentMixture },
  banana: { label: "banana in the plane", dim: 2, make: banana },
};

const whole = { step: 1, isWhole: true };

/** The numbers that a reader can set, with their names in the address. */
export const NUMBERS = {
  A: { label: "Leaders |A|", least: 2, most: 300, ...whole },
  B: { label: "Followers |B|", least: 2, most: 1000, ...whole },
  eps: { label: "Step ε", least: 0.001, most: 10, step: 0.05 },
  h: { label: "Bandwidth ×", least: 0.05, most: 100, step: 0.5 },
  seed: { label: "Seed", least: 0, most: 999999, ...whole },
};

/** The most transitions of a run. */
export const LAST_TRANSITION = 300;

const HILL = "0000013689abbbba98765432100000000".slice(0, DRAWING.count);
const TWO_MODES = "0.3 N(-2, 0.7) + 0.7 N(1.5, 0.8)";
const BASE = {
  target: "line",
  mixture: TWO_MODES,
  q0: "N(0, 1)",
  drawing: HILL,
  A: "100",
  B: "300",
  eps: "0.2",
  h: "4",
  seed: "1",
};

/** Settings that teach something, each with what to look at. */
export const PRESETS = {
  works: {
    label: "It works",
    text:
      "The leaders pull the proposal onto both modes. KL falls, ESS/|B| rises, and log Ẑ comes " +
      "close to the truth. Step slowly and watch the log-weights flatten.",
    values: {},
  },
  rise: {
    label: "KL that rises",
    text:
      "With 25 leaders and the paper's bandwidth, KL falls at first and then rises again. The " +
      "leaders have come to rest, but the field between them has not: it goes on bending the " +
      "proposal. Run 200 transitions, then raise |A| or the bandwidth.",
    values: { A: "25", h: "1", eps: "0.3" },
  },
  fold: {
    label: "A map that folds",
    text:
      "The step is too long: some determinants are negative, so two points land on the same " +
      "place. The tracked density then counts one of them only. The curve of q doubles back, " +
      "weights are too large, and log Ẑ rises far above the truth. Lower ε until no map folds.",
    values: { A: "30", h: "1", eps: "2" },
  },
  missed: {
    label: "A missed mode",
    text:
      "Half of the target lies at 10, where no particle goes. ESS/|B| and k̂ look good, and the " +
      "standard error is small, yet log Ẑ is too low by log 2 = 0.69. Weights cannot reveal a " +
      "region that no follower visited.",
    values: {
      mixture: "0.5 N(0, 1) + 0.5 N(10, 1)",
      q0: "N(0.5, 1.2)",
      h: "10",
      seed: "2",
    },
  },
  answer: {
    label: "Start at the answer",
    text:
      "The start is the target itself, so all weights are equal and KL is zero. A finite number " +
      "of leaders does not know that: their field is not zero, and KL rises from the first " +
      "transition on.",
    values: { q0: TWO_MODES, A: "25", h: "1" },
  },
  plane: {
    label: "Modes in the plane",
    text:
      "Three modes of different width. Large circles are followers with a large weight; they " +
      "stand where the proposal has too little mass. Compare a bandwidth of 1 with one of 6.",
    values: {
      target: "plane",
      mixture: "0.3 N((-2, -1), 0.7) + 0.4 N((2, -1), (0.6, 1)) + 0.3 N((0, 2), 0.8)",
      q0: "N((0, 0), 1.5)",
      h: "6",
    },
  },
  bent: {
    label: "Bent mixture",
    text:
      "The target of Section 3. The proposal has to follow a curve, and the tips of the arms " +
      "are reached last.",
    values: { target: "bent", q0: "N((0, 0), 2)", h: "6" },
  },
  banana: {
    label: "Banana",
    text:
      "The density of the landing page. Its log Z is known, about 1.51, and a step of 0.1 is " +
      "short enough; with a longer one maps fold in the steep arms.",
    values: { target: "banana", q0: "N((0, 1), 1.5)", h: "8", eps: "0.1" },
  },
};

/** The texts of all fields of a preset. */
export function presetFields(name) {
  return { ...BASE, ...PRESETS[name].values };
}

/** What the fields hold before the reader changes anything. */
export const DEFAULTS = presetFields("works");

/** The start that is filled in where the reader goes from the line to the plane, or back. */
export const USUAL = {
  1: { mixture: TWO_MODES, q0: "N(0, 1)" },
  2: { mixture: PRESETS.plane.values.mixture, q0: "N((0, 0), 1.5)" },
};

/**
 * Checks the texts of all fields.
 *
 * @returns {{settings: object | null, errors: Record<string, string>}} Settings for a run if there
 *   is no error; else a sentence for each field that has one.
 */
export function validate(fields) {
  const errors = {};
  const kind = Object.hasOwn(TARGETS, fields.target) ? TARGETS[fields.target] : null;
  if (!kind) {
    const known = Object.keys(TARGETS).join(", ");
    errors.target = `The target must be one of ${known}, but the address has "${fields.target}".`;
  }
  const dim = kind?.dim ?? 1;
  const attempt = (name, make) => {
    try {
      return make();
    } catch (error) {
      if (!(error instanceof MixtureError)) throw error;
      errors[name] = error.message;
      return null;
    }
  };
  let target = null;
  if (kind?.typed) {
    target = attempt("mixture", () => parseMixture(fields.mixture, dim));
  } else if (fields.target === "drawn") {
    target = attempt("drawing", () => readDrawing(fields.drawing));
  } else {
    target = kind?.make() ?? null;
  }
  const q0 = attempt("q0", () => normalised(parseMixture(fields.q0, dim)));
  const settings = { target, q0 };
  for (const [name, limits] of Object.entries(NUMBERS)) {
    const value = fields[name].trim() === "" ? NaN : Number(fields[name]);
    const fits = value >= limits.least && value <= limits.most;
    if (fits && (!limits.isWhole || Number.isInteger(value))) settings[name] = value;
    else {
      const sort = limits.isWhole ? "a whole number" : "a number";
      errors[name] = `${limits.label} must be ${sort} from ${limits.least} to ${limits.most}.`;
    }
  }
  return { settings: Object.keys(errors).length ? null : settings, errors };
}

/** The heights of a drawing from its text, a digit or letter (0 to z) for each slider. */
export function drawingHeights(drawing) {
  if (!new RegExp(`^[0-9a-z]{${DRAWING.count}}$`).test(drawing)) return null;
  return Array.from(drawing, (digit) => parseInt(digit, 36));
}

/** The text of a drawing from its heights. */
export function drawingText(heights) {
  return heights.map((height) => height.toString(36)).join("");
}

function readDrawing(drawing) {
  const heights = drawingHeights(drawing);
  if (!heights) {
    throw new MixtureError(
      `A drawing in the address is ${DRAWING.count} digits or small letters, one for each slider.`,
    );
  }
  return drawn(heights);
}

/** Writes all fields that differ from the defaults, and the transition, as an address's query. */
export function toQuery(fields, transition) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) {
    if (isUsed(name, fields) && value !== DEFAULTS[name]) query.set(name, value);
  }
  if (transition) query.set("t", String(transition));
  return query.toString();
}

/** Whether a field has a meaning for this kind of target. */
export function isUsed(name, fields) {
  if (name === "mixture") return Boolean(TARGETS[fields.target]?.typed);
  if (name === "drawing") return fields.target === "drawn";
  return true;
}

/** Reads fields and transition from an address's query; fields that are not there get defaults. */
export function fromQuery(text) {
  const query = new URLSearchParams(text);
  const fields = Object.fromEntries(
    Object.entries(DEFAULTS).map(([name, value]) => [name, query.get(name) ?? value]),
  );
  const asked = Number(query.get("t") ?? 0);
  const transition = Number.isInteger(asked) && asked > 0 ? Math.min(asked, LAST_TRANSITION) : 0;
  return { fields, transition };
}
