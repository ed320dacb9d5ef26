# `make book` and `make test` each work on a fresh clone; they need make and Python 3.11 to 3.13.

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
PORT ?= 8000
PROFILE ?= paper

SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
# The first of these commands that is a supported Python; override with PYTHON=/path/to/python.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	if $$p -c "$(SUPPORTED)" 2>/dev/null; then echo $$p; break; fi; done)

# One process per core, eight at most. The tests of one file stay in one process.
PYTEST := $(PY) -m pytest -n logical --maxprocesses 8 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help install book pdf links notebooks serve check test lint lock clean distclean

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/\1\t\2/' \
		| awk -F '\t' '{ printf "  make %-10s %s\n", $$1, $$2 }'

install: $(STAMP) ## Create .venv with the pinned packages and this library

# The stamp is written last: without it the environment is unfinished and is made from nothing.
$(STAMP): requirements.lock pyproject.toml
	@"$(PYTHON)" -c "$(SUPPORTED)" 2>/dev/null || { \
		echo "Python 3.11, 3.12 or 3.13 is needed and was not found. Install it, or name it:" >&2; \
		echo "  make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -f $@ || "$(PYTHON)" -m venv --clear $(VENV)
	@rm -f $@
	@echo "Installing the pinned packages into $(VENV): several minutes the first time."
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

book: $(STAMP) ## Run the notebooks where needed and build the book (PROFILE=quick for a fast look)
	$(PY) book/build.py --profile $(PROFILE)

pdf: book ## Print the whole book as one PDF (needs Chromium)
	$(PY) book/pdf.py

links: $(STAMP) ## Check the links inside the built book
	PYTHONPATH=book $(PY) -m bookparts.links

notebooks: $(STAMP) ## Write each notebook's cells of setup and of parameters
	$(PY) -m steinis_lib.companion.notebooks
	$(PY) book/setup_cells.py

serve: $(STAMP) ## Serve the built book on this computer (PORT=8000)
	@test -f book/_build/html/index.html || { echo "Run 'make book' first." >&2; exit 1; }
	@echo "The book is at http://127.0.0.1:$(PORT)/ (stop with Ctrl-C)"
	@$(PY) -m http.server $(PORT) --bind 127.0.0.1 --directory book/_build/html

check: $(STAMP) ## For every save: check style and imports, run the fast tests (a minute)
	$(PY) -m ruff check .
	$(VENV)/bin/lint-imports --no-logo
	$(PYTEST) --quiet -m "not slow"

# With a browser on the path the tests read the built book, so it is built first.
CHROMIUM := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

test: lint $(if $(CHROMIUM),book) ## Check style, imports and types, then run all tests
	$(PYTEST)

lint: $(STAMP) ## Check style, format, imports and types only
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(VENV)/bin/lint-imports --no-logo
	$(PY) -m mypy

lock: ## Add to requirements.lock what pyproject.toml asks for (needs all three Pythons)
	"$(PYTHON)" .ci/lock.py

clean: ## Remove what was built or generated (results in data/ are kept)
	rm -rf build dist *.egg-info book/_build book/_generated book/api book/sections
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## Remove .venv as well
	rm -rf $(VENV)
