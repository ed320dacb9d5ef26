/** The demo's page: builds the controls, runs SteinIS, and shows what it does. */

import { makeBoard } from "./drawing.js";
import { AT_ONCE, FIELDS, VIEW } from "./form.js";
import { measure } from "./measure.js";
import { drawHistory, drawLine, drawPlane } from "./plots.js";
import { randomGenerator } from "./random.js";
import {
  LAST_TRANSITION,
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
import { startRun, step } from "./steinis.js";
import { DRAWING } from "./targets.js";
import { inWords, readings, round } from "./words.js";

const MILLISECONDS_PER_TRANSITION = 90;

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
  const showDrawing = makeBoard(find(".demo-sliders"), (heights) => {
    fields = { ...fields, drawing: drawingText(heights) };
    restart();
  });

  // Settings

  /** Shows the fields' texts in the form. */
  function fill() {
    for (const [name, value] of Object.entries(fields)) {
      const control = form.elements[name];
      if (control) control.value = value;
    }
    showDrawing(drawingHeights(fields.drawing) ?? Array(DRAWING.count).fill(0));
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
    announce(`Transition ${run.transition}. ${readingsNow().map(inWords).join(" ")}`);
    if (find(".demo-log").open) writeLog();
  }

  function announce(message) {
    setText(find(".demo-status"), message);
  }

  // Showing

  function readingsNow() {
    return readings(history.at(-1), settings.target.logZ);
  }

  function draw() {
    const now = history.at(-1);
    const show = settings.target.dim === 1 ? drawLine : drawPlane;
    show(find(".demo-space"), run, settings.q0, now, describe(now));
    drawHistory(
      find(".demo-history"),
      history,
      `KL and KSD² against transitions. KL is ${round(history[0].kl)} at the start and ` +
        `${now.folded ? "unknown" : round(now.kl)} after transition ${now.transition}.`,
    );
    setText(find(".demo-transition"), `Transition ${now.transition}`);
    find(".demo-readings tbody").innerHTML = readingsNow()
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

/** Sets a text if it differs, so that screen readers are not told the same twice. */
function setText(element, content) {
  if (element.textContent !== content) element.textContent = content;
}

startDemo(document.getElementById("steinis-demo"));
