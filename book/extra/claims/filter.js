// Buttons above the tables of claims that show the rows of one verdict, or of one section.
// Without scripts the headings of the page do the same.

const rows = [...document.querySelectorAll(".claims-table tbody tr")].map((row) => {
  const chip = row.querySelector(".verdict");
  const section = row.closest("section");
  const heading = section.querySelector("h3, h2");
  return {
    row,
    section,
    verdict: chip ? chip.textContent.trim() : "",
    place: heading.firstChild.textContent.split(".")[0].trim(),
  };
});
const chosen = { verdict: "", place: "" };
const status = document.createElement("p");
status.setAttribute("role", "status");

function shows(entry) {
  return Object.entries(chosen).every(([key, value]) => !value || entry[key] === value);
}

function update(bar) {
  const sections = new Map();
  for (const entry of rows) {
    entry.row.hidden = !shows(entry);
    sections.set(entry.section, sections.get(entry.section) || !entry.row.hidden);
  }
  for (const [section, visible] of sections) {
    section.hidden = !visible;
  }
  for (const button of bar.querySelectorAll("button")) {
    const pressed = chosen[button.dataset.key] === button.value;
    button.setAttribute("aria-pressed", String(pressed));
  }
  const n = rows.filter((entry) => !entry.row.hidden).length;
  status.textContent = `${n} of ${rows.length} claims are shown.`;
}

function group(bar, name, key) {
  const values = [...new Set(rows.map((entry) => entry[key]))];
  const box = document.createElement("div");
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", name);
  box.append(`${name}: `);
  for (const value of ["", ...values]) {
    const n = rows.filter((entry) => !value || entry[key] === value).length;
    const button = document.createElement("button");
    button.type = "button";
    button.value = value;
    button.dataset.key = key;
    button.textContent = `${value || "all"} (${n})`;
    button.addEventListener("click", () => {
      chosen[key] = value;
      update(bar);
    });
    box.append(button);
  }
  bar.append(box);
}

// A link to a claim that is filtered out shows all claims again.
function reveal(bar) {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.closest("[hidden]")) {
    chosen.verdict = chosen.place = "";
    update(bar);
    target.scrollIntoView();
  }
}

const place = document.getElementById("claims-filter");
if (place && rows.length) {
  place.classList.add("claims-filter");
  group(place, "Verdict", "verdict");
  group(place, "Section", "place");
  place.append(status);
  update(place);
  window.addEventListener("hashchange", () => reveal(place));
}
