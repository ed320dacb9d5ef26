"""The few icons that the pages use, in place of a script of 1.5 MB that has them all.

They are taken from the theme's own copy of Font Awesome (its icons are under CC BY 4.0).
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

SCRIPT = Path("_static", "scripts", "fontawesome.js")
STYLE = Path("_static", "icons.css")
TAG = re.compile(r'<script[^>]*src="[^"]*/fontawesome\.js[^"]*"[^>]*></script>')
SIZES = {"fa-lg", "fa-solid", "fa-brands", "fa-regular", "fa-fw"}

BASE = """\
/* Icons: Font Awesome Free by Fonticons, https://fontawesome.com, CC BY 4.0. */
:is(.fas, .fa-solid, .fa-brands, .fab) {
  display: inline-block;
  width: 1em;
  height: 1em;
  vertical-align: -0.125em;
  background-color: currentcolor;
  mask: var(--icon) center / contain no-repeat;
}

.fa-lg {
  font-size: 1.25em;
}

@media (forced-colors: active) {
  :is(.fas, .fa-solid, .fa-brands, .fab) {
    background-color: ButtonText;
    forced-color-adjust: none;
  }
}
"""


def used(html: str) -> set[str]:
    """Return the icons that a page or a script names."""
    return set(re.findall(r"\bfa-[a-z0-9-]+\b", html)) - SIZES


def rule(icon: str, script: str) -> str:
    """Return the rule of a style sheet that draws an icon.

    Raises
    ------
    ValueError
        If the theme's script has no such icon.
    """
    name = re.escape(icon.removeprefix("fa-"))
    key = rf'(?<![\w-])(?:"{name}"|{name}):\[(\d+),(\d+),\[[^\]]*\],"[0-9a-f]+","([^"]+)"\]'
    found = list(re.finditer(key, script))
    if not found:
        raise ValueError(
            f"a page uses the icon {icon!r}, and {SCRIPT} has no drawing of that name: "
            "use another icon, or add its drawing to the book's style sheet"
        )
    width, height, path = found[-1].groups()  # the solid variant comes last
    box = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}'>"
    drawing = quote(f"{box}<path d='{path}'/></svg>", safe="/ =':")
    return f'.{icon} {{\n  --icon: url("data:image/svg+xml,{drawing}");\n}}\n'


def shrink(html_folder: Path) -> None:
    """Give a built book the style sheet of its icons, and take the script away."""
    script = html_folder / SCRIPT
    names: set[str] = set()
    for path in html_folder.rglob("*.html"):
        text = path.read_text("utf-8")
        names |= used(text)
        if TAG.search(text):
            path.write_text(TAG.sub("", text), "utf-8")
    text = script.read_text("utf-8")
    style = BASE + "".join(f"\n{rule(name, text)}" for name in sorted(names))
    (html_folder / STYLE).write_text(style, "utf-8")
    for left in script.parent.glob("fontawesome.js*"):
        left.unlink()
