/** A row of sliders on which the reader draws a density, by pointer or by keyboard. */

import { DRAWING } from "./targets.js";
import { round } from "./words.js";

/**
 * Fills the board with sliders.
 *
 * @param {HTMLElement} board
 * @param {(heights: number[]) => void} changed Called when the reader has drawn something.
 * @returns {(heights: number[]) => void} Sets the sliders.
 */
export function makeBoard(board, changed) {
  const sliders = Array.from({ length: DRAWING.count }, (_, i) => {
    const place = DRAWING.low + i * DRAWING.spacing;
    const slider = document.createElement("input");
    Object.assign(slider, { type: "range", min: 0, max: DRAWING.highest, step: 1 });
    slider.setAttribute("aria-label", `Height at x = ${round(place)}`);
    board.append(slider);
    return slider;
  });
  const tell = () => changed(sliders.map(({ value }) => Number(value)));
  let last = null; // the slider and height that the pointer touched last

  /** Raises the slider under the pointer, and those that it skipped, to the pointer's height. */
  function paint(event) {
    const box = board.getBoundingClientRect();
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

  board.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    board.setPointerCapture(event.pointerId);
    last = null;
    paint(event);
  });
  board.addEventListener("pointermove", (event) => {
    if (board.hasPointerCapture(event.pointerId)) paint(event);
  });
  board.addEventListener("pointerup", tell);
  board.addEventListener("change", (event) => {
    event.stopPropagation(); // the form has no field of this name
    tell();
  });
  return (heights) => sliders.forEach((slider, i) => (slider.value = heights[i]));
}
