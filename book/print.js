() => {
  // Captions for figures that have none. They are numbered by section; where a page is no section,
  // by a letter.
  let letter = 64; // the one before A
  for (const chapter of document.querySelectorAll("article.book-page")) {
    const figures = [...chapter.querySelectorAll(".steinis-figure")].filter(
      (figure) => !figure.closest("figure")?.querySelector("figcaption"),
    );
    if (!figures.length) continue;
    const section = chapter.querySelector("h1").textContent.match(/^Section (\d+)/)?.[1];
    const name = section ?? String.fromCharCode(++letter);
    figures.forEach((figure, i) => {
      const caption = document.createElement("p");
      caption.className = "book-caption";
      const picture = figure.querySelector("[aria-label], [alt]");
      const shows = picture.getAttribute("aria-label") ?? picture.getAttribute("alt");
      caption.textContent = `Figure ${name}.${i + 1}. ${shows}`;
      figure.append(caption);
    });
  }
  // What a reader unfolds on the screen is unfolded on paper, except for folded code.
  for (const details of document.querySelectorAll("details")) details.open = true;
  // Nothing is wider than the paper: what is gets smaller.
  const paper = document.querySelector("main").getBoundingClientRect();
  const boxes = "mjx-container[display=true], table, .steinis-figure, pre, .sig";
  const wide = [];
  for (const box of document.querySelectorAll(boxes)) {
    const { left, width } = box.getBoundingClientRect();
    const share = (paper.right - left) / Math.max(box.scrollWidth, width);
    if (share < 1) box.style.zoom = Math.max(0.45, share * 0.98);
    if (share < 0.45) wide.push(`${box.tagName}: ${box.textContent.trim().slice(0, 60)}`);
  }
  return wide;
}
