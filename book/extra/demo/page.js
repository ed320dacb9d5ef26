/** The demo's page: builds the controls, runs SteinIS, and shows what it does. */

import { drawHistory, drawLine, drawPlane } from "./plots.js";
import { randomGenerator } from "./random.js";
import {
  LAST_TRANSITION,
  NUMBERS,
  PRESETS,
  TARGETS,
  USUAL,
  drawingHeights,
  drawingText,
  fromQuery,
  isUsed,
  presetFields,
  toQuery,
  validate,
} from "./settings.js";
import { measure, startRun, step } from "./steinis.js";
import { DRAWING } from "./targets.js";

const MILLISECONDS_PER_TRANSITION = 90;
const AT_ONCE = 50;

const FIELDS = `
  <fieldset class="demo-presets"><legend>Examples that teach</legend>
    <div class="demo-buttons">${Object.entries(PRESETS)
      .map(
        ([name, { label }]) =>
          `<button type="button" data-preset="${name}" aria-pressed="false">${label}</button>`,
      )
      .join("")}</div>
    <p class="demo-lesson" aria-live="polite"></p>
  </fieldset>
  <form class="demo-form" novalidate aria-label="Settings">
    ${field("target", "Target", select(TARGETS), "wide")}
    ${field("mixture", "Mixture: weight N(mean, standard deviation) + …", textBox(), "wide")}
    ${field("q0", "Start q0, in the same form", textBox(), "wide")}
    <fieldset class="demo-drawing"><legend>Draw the target: drag over the bars, or use the arrow
      keys</legend><div class="demo-sliders"></div><p class="demo-error" id="demo-drawing-error"
      role="alert"></p></fieldset>
    ${Object.entries(NUMBERS)
      .map(([name, limits]) => field(name, limits.label, numberBox(limits)))
      .join("")}
  </form>`;

const VIEW = `
  <div class="demo-buttons demo-run" role="group" aria-label="Run">
    <button type="button" data-do="play">Play</button>
    <button type="button" data-do="step">Step</button>
    <button type="button" data-do="many">Run ${AT_ONCE}</button>
    <button type="button" data-do="reset">Reset</button>
    <output class="demo-transition"></output>
  </div>
  <p class="demo-error demo-stopped" role="alert"></p>
  <p class="demo-quiet" hidden>Your system asks for less motion, so nothing plays by itself: use
    “Step” or “Run ${AT_ONCE}”.</p>
  <div class="demo-results" hidden>
  <div class="demo-plot"><svg class="demo-space" role="img"></svg></div>
  <div class="demo-below">
    <div class="demo-plot"><svg class="demo-history" role="img"></svg></div>
    <div class="demo-plot"><table class="demo-readings">
      <caption>Readings</caption>
      <thead><tr><th scope="col">Quantity</th><th scope="col">Value</th>
        <th scope="col">Remark</th></tr></thead>
      <tbody></tbody></table></div>
  </div>
  <details class="demo-log"><summary>Table of all transitions</summary>
    <div class="demo-scroll" tabindex="0" role="region" aria-label="Table of all transitions">
    <table><thead><tr>${["Transition", "KL", "KSD²", "ESS/|B|", "k̂", "log Ẑ", "s.e."]
      .map((name) => `<th scope="col">${name}</th>`)
      .join("")}</tr></thead><tbody></tbody></table></div>
  </details>
  </div>
  <p class="demo-status" role="status"></p>`;

function field(name, label, control, size = "") {
  const attributes = `id="demo-${name}" name="${name}" aria-describedby="demo-${name}-error"`;
  return `<div class="demo-field ${size}" data-field="${name}">
    <label for="demo-${name}">${label}</label>
    ${control.replace("%", attributes)}
    <p class="demo-error" id="demo-${name}-error" role="alert"></p></div>`;
}

function textBox() {
  return '<input type="text" spellcheck="false" autocomplete="off" %>';
}

function numberBox({ least, most, step: size }) {
  return `<input type="number" min="${least}" max="${most}" step="${size}" autocomplete="off" %>`;
}

function select(options) {
  const items = Object.entries(options).map(
    ([name, { label }]) => `<option value="${name}">${label}</option>`,
  );
  return `<select autocomplete="off" %>${items.join("")}</select>`;
}

/** Turns the element into the demo, and hides the still figure that stands in for it. */
function startDemo(root) {
  root.innerHTML = FIELDS + VIEW;
  document.querySelectorAll(".demo-still").forEach((element) => (element.hidden = true));
  const find = (selector) => root.querySelector(selector);
  const form = find("form");
  const lessMotion = window.matchMedia("(prefers-reduced-motion: reduce)");

  let { fields, transition } = fromQuery(location.search);
  let settings = null; // of the run that is shown
  let run = null;
  let history = [];
  let timer = null;

  // Settings

  /** Shows the fields' texts in the form. */
  function fill() {
    for (const [name, value] of Object.entries(fields)) {
      const control = form.elements[name];
      if (control) control.value = value;
    }
    const heights = drawingHeights(fields.drawing) ?? Array(DRAWING.count).fill(0);
    sliders.forEach((slider, i) => (slider.value = heights[i]));
    for (const name of ["mixture", "drawing"]) {
      const part = find(name === "drawing" ? ".demo-drawing" : `[data-field="${name}"]`);
      part.hidden = !isUsed(name, fields);
    }
    for (const button of root.querySelectorAll("[data-preset]")) {
      const preset = presetFields(button.dataset.preset);
      const same = Object.keys(fields).every(
        (name) => !isUsed(name, fields) || fields[name] === preset[name],
      );
      button.setAttribute("aria-pressed", String(same));
      if (same) setText(find(".demo-lesson"), PRESETS[button.dataset.preset].text);
    }
    if (!find('[aria-pressed="true"]')) setText(find(".demo-lesson"), "Settings of your own.");
  }

  /** Checks the fields, says what is wrong, and starts a new run if nothing is. */
  function restart(wanted = 0) {
    pause();
    fill();
    const { settings: valid, errors } = validate(fields);
    for (const name of Object.keys(fields)) showError(name, errors[name] ?? "");
    setBroken(!valid);
    if (!valid) {
      if (run) announce("The run shown is that of the last valid settings.");
      return;
    }
    settings = valid;
    const leaders = valid.q0.sample(valid.A, randomGenerator(valid.seed, 1));
    const followers = valid.q0.sample(valid.B, randomGenerator(valid.seed, 2));
    run = startRun(valid.target, valid.q0, leaders, followers, {
      epsilon: valid.eps,
      multiplier: valid.h,
    });
    history = [measure(run)];
    find(".demo-results").hidden = false;
    setText(find(".demo-stopped"), "");
    advance(wanted);
    settle();
  }

  function showError(name, message) {
    setText(find(`#demo-${name}-error`), message);
    const control = form.elements[name];
    if (control) control.setAttribute("aria-invalid", String(Boolean(message)));
  }

  function setBroken(broken) {
    for (const button of root.querySelectorAll("[data-do]")) button.disabled = broken;
  }

  // Running

  /** Takes so many transitions, fewer if the run ends, and draws the last. */
  function advance(count) {
    try {
      for (let i = 0; i < count && run.transition < LAST_TRANSITION; i++) {
        const next = step(run);
        history.push(measure(next));
        run = next;
      }
      if (run.transition >= LAST_TRANSITION) {
        stop(`The run ends after ${LAST_TRANSITION} transitions.`);
      }
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      stop(error.message);
    }
    draw();
  }

  function stop(message) {
    pause();
    setText(find(".demo-stopped"), message);
    for (const name of ["play", "step", "many"]) find(`[data-do="${name}"]`).disabled = true;
  }

  function play() {
    find('[data-do="play"]').textContent = "Pause";
    timer = setInterval(() => advance(1), MILLISECONDS_PER_TRANSITION);
  }

  function pause() {
    clearInterval(timer);
    timer = null;
    find('[data-do="play"]').textContent = "Play";
  }

  /** After the reader's action: notes the state in the address, and says it in words. */
  function settle() {
    const query = toQuery(fields, run.transition);
    const address = query ? `?${query}` : location.pathname;
    window.history.replaceState(null, "", address + location.hash);
    const now = history.at(-1);
    announce(`Transition ${now.transition}. ${readings(now).map(inWords).join(" ")}`);
    if (find(".demo-log").open) writeLog();
  }

  function announce(message) {
    setText(find(".demo-status"), message);
  }

  // Showing

  function draw() {
    const now = history.at(-1);
    const show = settings.target.dim === 1 ? drawLine : drawPlane;
    show(find(".demo-space"), run, settings.q0, now, describe(now));
    const first = history[0];
    drawHistory(
      find(".demo-history"),
      history,
      `KL and KSD² against transitions. KL is ${round(first.kl)} at the start and ` +
        `${round(now.kl)} after transition ${now.transition}.`,
    );
    setText(find(".demo-transition"), `Transition ${now.transition}`);
    find(".demo-readings tbody").innerHTML = readings(now)
      .map(([name, value, remark]) => {
        return `<tr><th scope="row">${name}</th><td>${value}</td><td>${remark}</td></tr>`;
      })
      .join("");
  }

  function describe({ transition: t }) {
    const { A, B, target } = settings;
    const place = target.dim === 1 ? "on the line, with the log-weights below" : "in the plane";
    return `Target, start, ${A} leaders and ${B} followers ${place}, after transition ${t}.`;
  }

  /** Name, value and remark of each quantity. */
  function readings(now) {
    const { target } = settings;
    const off = (now.logZ - target.logZ) / now.logZError;
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
      ["log Z", round(target.logZ, 3), "the truth"],
      [
        "smallest determinant",
        now.transition ? round(now.smallestDeterminant) : "–",
        now.folds ? `${now.folds} folds met` : beside,
      ],
    ];
  }

  function writeLog() {
    find(".demo-log tbody").innerHTML = history
      .map((m) => {
        const kl = m.folded ? "–" : round(m.kl);
        const rest = [m.ksdSquared, m.essFraction, m.paretoK, m.logZ, m.logZError];
        const cells = [kl, ...rest.map((value) => round(value))];
        return `<tr><th scope="row">${m.transition}</th>${cells
          .map((value) => `<td>${value}</td>`)
          .join("")}</tr>`;
      })
      .join("");
  }

  // The drawing

  const sliders = Array.from({ length: DRAWING.count }, (_, i) => {
    const place = DRAWING.low + i * DRAWING.spacing;
    const slider = document.createElement("input");
    Object.assign(slider, { type: "range", min: 0, max: DRAWING.highest, step: 1 });
    slider.setAttribute("aria-label", `Height at x = ${round(place)}`);
    find(".demo-sliders").append(slider);
    return slider;
  });

  function readSliders() {
    fields = { ...fields, drawing: drawingText(sliders.map(({ value }) => Number(value))) };
  }

  let last = null; // the slider and height that the pointer touched last

  /** Raises the slider under the pointer, and those that it skipped, to the pointer's height. */
  function paint(event) {
    const box = find(".demo-sliders").getBoundingClientRect();
    const within = (value, most) => Math.max(0, Math.min(most, value));
    const share = (event.clientX - box.left) / box.width;
    const i = within(Math.floor(share * sliders.length), sliders.length - 1);
    const up = (box.bottom - event.clientY) / box.height;
    const height = within(Math.round(up * DRAWING.highest), DRAWING.highest);
    const from = last ?? { i, height };
    const count = Math.abs(i - from.i);
    for (let k = 0; k <= count; k++) {
      const part = count ? k / count : 1;
      const at = from.i + Math.sign(i - from.i) * k;
      sliders[at].value = Math.round(from.height + part * (height - from.height));
    }
    last = { i, height };
  }

  const board = find(".demo-sliders");
  board.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    board.setPointerCapture(event.pointerId);
    last = null;
    paint(event);
  });
  board.addEventListener("pointermove", (event) => {
    if (board.hasPointerCapture(event.pointerId)) paint(event);
  });
  board.addEventListener("pointerup", () => {
    readSliders();
    restart();
  });
  board.addEventListener("change", (event) => {
    event.stopPropagation(); // the form has no field of this name
    readSliders();
    restart();
  });

  // Events

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", ({ target: control }) => {
    const before = TARGETS[fields.target]?.dim;
    fields = { ...fields, [control.name]: control.value };
    const { dim, typed } = TARGETS[fields.target] ?? {};
    if (control.name === "target" && dim !== before) {
      fields = { ...fields, ...USUAL[dim] };
    } else if (control.name === "target" && typed && validate(fields).errors.mixture) {
      fields = { ...fields, mixture: USUAL[dim].mixture };
    }
    restart();
  });
  const actions = {
    play: () => (timer === null ? play() : (pause(), settle())),
    step: () => (pause(), advance(1), settle()),
    many: () => (pause(), advance(AT_ONCE), settle()),
    reset: () => restart(),
  };
  root.addEventListener("click", ({ target: element }) => {
    const button = element.closest("button");
    if (button?.dataset.preset) {
      fields = presetFields(button.dataset.preset);
      restart();
    } else if (button?.dataset.do) {
      actions[button.dataset.do]();
    }
  });
  find(".demo-log").addEventListener("toggle", () => {
    if (find(".demo-log").open && history.length) writeLog();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden && timer !== null) {
      pause();
      settle();
    }
  });

  function followMotion() {
    find('[data-do="play"]').hidden = lessMotion.matches;
    find(".demo-quiet").hidden = !lessMotion.matches;
    if (lessMotion.matches) pause();
  }
  lessMotion.addEventListener("change", followMotion);
  followMotion();

  let drawnWidth = root.clientWidth;
  new ResizeObserver(() => {
    if (run && root.clientWidth !== drawnWidth) draw();
    drawnWidth = root.clientWidth;
  }).observe(root);

  restart(transition);
}

// Words and numbers

/** A few digits, one more from 10 on, with a proper minus sign. */
function round(value, digits = 2) {
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

function inWords([name, value, remark]) {
  return `${name}: ${value}${remark ? `, ${remark}` : ""}.`;
}

/** Sets a text if it differs, so that screen readers are not told the same twice. */
function setText(element, content) {
  if (element.textContent !== content) element.textContent = content;
}

const place = document.getElementById("steinis-demo");
if (place) startDemo(place);
