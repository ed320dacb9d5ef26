// What the pages need for the keyboard: parts that scroll sideways can be reached, and animations
// can be paused. Without scripts the pages are whole, and browsers decide on both.

const SCROLLERS =
  ".steinis-figure, .pst-scrollable-table-container, .cell_output, .output, pre, dt.sig, .highlight, " +
  "div.math, div.amsmath, mjx-container";

function markScrollers() {
  for (const box of document.querySelectorAll(SCROLLERS)) {
    const scrolls = box.scrollWidth > box.clientWidth + 1;
    const overflow = getComputedStyle(box).overflowX;
    if (scrolls && (overflow === "auto" || overflow === "scroll")) {
      box.tabIndex = 0;
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", "This part scrolls sideways");
    } else if (box.getAttribute("role") === "group") {
      box.removeAttribute("tabindex");
      box.removeAttribute("role");
      box.removeAttribute("aria-label");
    }
  }
}

function still(picture) {
  const canvas = document.createElement("canvas");
  canvas.width = picture.naturalWidth;
  canvas.height = picture.naturalHeight;
  canvas.getContext("2d").drawImage(picture, 0, 0);
  return canvas.toDataURL("image/png");
}

function addPause(picture) {
  const moving = picture.src;
  const stopped = still(picture);
  const button = document.createElement("button");
  button.type = "button";
  button.className = "pause-animation";
  button.textContent = "Pause the animation";
  const set = (pause) => {
    picture.src = pause ? stopped : moving;
    button.setAttribute("aria-pressed", String(pause));
  };
  button.addEventListener("click", () => set(picture.src === moving));
  picture.after(button);
  set(matchMedia("(prefers-reduced-motion: reduce)").matches);
}

async function begin() {
  for (const picture of document.querySelectorAll('img[src^="data:image/gif"]')) {
    await picture.decode();
    addPause(picture);
  }
  await window.MathJax?.startup?.promise;
  markScrollers();
  new ResizeObserver(markScrollers).observe(document.querySelector("main") ?? document.body);
  // Folded parts have no size until they are opened.
  document.addEventListener("toggle", markScrollers, true);
}

if (document.readyState === "complete") {
  begin();
} else {
  window.addEventListener("load", begin);
}
