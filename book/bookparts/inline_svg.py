"""A directive for figures that follow the page's light or dark mode: SVG inside the page.

An SVG that a page shows as a picture cannot take the page's text colour, so its markup goes into
the page. The result is a numbered figure with a caption, as from ``figure``::

    ```{inline-svg} _generated/leapfrog.svg
    :name: fig-leapfrog
    The caption.
    ```
"""

from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class InlineSvg(SphinxDirective):
    """A figure whose picture is the SVG file of that path; the content is the caption."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"name": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """Return the figure."""
        relative, absolute = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(relative)
        try:
            markup = Path(absolute).read_text(encoding="utf-8")
        except OSError as error:
            raise self.error(f"the SVG file cannot be read: {error}") from error
        picture = nodes.raw("", f'<div class="steinis-figure">{markup}</div>', format="html")
        caption = nodes.caption()
        text, messages = self.state.inline_text(" ".join(self.content), self.lineno)
        caption += text
        figure = nodes.figure("", picture, caption)
        self.set_source_info(figure)
        self.add_name(figure)
        return [figure, *messages]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("inline-svg", InlineSvg)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
