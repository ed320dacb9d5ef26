/** The demo's controls and the places for its results, as HTML. */

import { NUMBERS, PRESETS, TARGETS } from "./settings.js";

/** How many transitions a button takes at once. */
export const AT_ONCE = 50;

export const FIELDS = `
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

export const VIEW = `
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
