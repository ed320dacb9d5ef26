() => {
  // Captions with numbers for figures that have none: the chapter's number, then the figure's.
  const chapters = [...document.querySelectorAll("article.book-page")];
  chapters.forEach((chapter, i) => {
    const title = chapter.querySelector("h1")?.textContent ?? "";
    const name = title.match(/^Section (\d+)/)?.[1] ?? String.fromCharCode(65 + (i % 26));
    let count = 0;
    for (const figure of chapter.querySelectorAll(".steinis-figure")) {
      if (figure.closest("figure")?.querySelector("figcaption")) continue;
      const picture = figure.querySelector("[aria-label]");
      const caption = document.createElement("p");
      caption.className = "book-caption";
      count += 1;
      caption.textContent = `Figure ${name}.${count}. ${picture?.getAttribute("aria-label") ?? ""}`;
      figure.append(caption);
    }
  });
  // What a reader unfolds on the screen is unfolded on paper, except for folded code.
  for (const details of document.querySelectorAll("details")) details.open = true;
  // Nothing is wider than the paper: what is gets smaller.
  const room = document.querySelector("main").clientWidth;
  const boxes = "mjx-container[display=true], table, .steinis-figure, pre, .sig";
  const wide = [];
  for (const box of document.querySelectorAll(boxes)) {
    const needed = Math.max(box.scrollWidth, box.getBoundingClientRect().width);
    const left = box.getBoundingClientRect().left - document.querySelector("main").getBoundingClientRect().left;
    const share = (room - left) / needed;
    if (share < 1) box.style.zoom = Math.max(0.45, share * 0.98);
    if (share < 0.45) wide.push(`${box.tagName}: ${box.textContent.trim().slice(0, 60)}`);
  }
  return wide;
}
