"""Parts of the book that are not pages: what ``build.py``, ``pdf.py`` and Sphinx use.

* `address`: where the repository and the published book are, if they are anywhere;
* `api`: the pages of the API reference, from the packages' public names;
* `fragments`: what the pages on citing and on reproducing include;
* `inline_svg`: a directive for figures that follow light and dark mode;
* `numbered`: links to the numbered figures and tables of sections, and the files of figures;
* `links`: checks the links of the built book;
* `site`: the Sphinx extension that adds what the theme lacks to every page, with its parts
  `formulas`, `icons`, `metadata` and `picture`.
"""
