"""Formulas that can be read where scripts are off: MathML beside what MathJax sets."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

WITHOUT_SCRIPTS = "<noscript><style>.math.notranslate { display: none; }</style></noscript>\n"
"""For the head: TeX source is not shown where MathML stands in for it."""

Visit = Callable[[Any, Any], None]


def mathml(tex: str, *, block: bool) -> str:
    """Return a formula as MathML."""
    tex = re.sub(r"\\(?:label|tag\*?)\{[^}]*\}|\\(?:nonumber|notag)\b", "", tex)
    if block and r"\\" in tex and r"\begin" not in tex:
        tex = rf"\begin{{aligned}}{tex}\end{{aligned}}"
    tex = re.sub(r"\\([bB]igg?)([lrm]?)\b", "", tex)  # a browser stretches brackets by itself
    return convert(tex, display="block" if block else "inline")


def add_renderers(app: Sphinx) -> None:
    """Let the renderers of formulas write MathML as well."""
    for renderers, block in (
        (app.registry.html_inline_math_renderers, False),
        (app.registry.html_block_math_renderers, True),
    ):
        visit, depart = renderers["mathjax"]
        renderers["mathjax"] = (_with_mathml(visit, block=block), depart)


def _with_mathml(visit: Visit, *, block: bool) -> Visit:
    def visit_both(translator: Any, node: nodes.Element) -> None:
        text = mathml(node.astext(), block=block)
        try:
            visit(translator, node)
        finally:  # it leaves by an exception that says that the node is done
            translator.body.append(f"<noscript>{text}</noscript>")

    return visit_both
