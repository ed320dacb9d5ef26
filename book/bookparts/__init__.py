"""Parts of the book that are not pages: what ``build.py``, ``pdf.py`` and Sphinx use.

* `address`: where the repository and the published book are, if they are anywhere;
* `api`: the pages of the API reference, from the packages' public names;
* `citing` and `costs`: fragments that the pages on citing and on reproducing include;
* `site`: the Sphinx extension that adds what the theme lacks to every page;
* `formulas`, `icons`, `launching`, `metadata`, `picture` and `searching`: the parts of `site`.
"""
