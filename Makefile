# `make book` and `make test` each work on a fresh clone; they need Python 3.11 and make.

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
PORT ?= 8000
PROFILE ?= paper

# The release of PyTorch that the lock pins.
TORCH := 2.13.0

IS_311 := import sys; sys.exit(sys.version_info[:2] != (3, 11))
# The first of these commands that is a working Python 3.11; override with PYTHON=/path/to/python.
PYTHON ?= $(shell for p in python3.11 python3 python; do \
	if $$p -c "$(IS_311)" 2>/dev/null; then echo $$p; break; fi; done)

.DEFAULT_GOAL := help
.PHONY: help install book serve test lint lock clean distclean

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/\1\t\2/' \
		| awk -F '\t' '{ printf "  make %-10s %s\n", $$1, $$2 }'

install: $(STAMP) ## Create .venv with the pinned packages and this library

# The stamp is written last: without it the environment is unfinished and is made from nothing.
$(STAMP): requirements.lock pyproject.toml
	@"$(PYTHON)" -c "$(IS_311)" 2>/dev/null || { \
		echo "Python 3.11 is needed and was not found. Install it, or name it:" >&2; \
		echo "  make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -f $@ || "$(PYTHON)" -m venv --clear $(VENV)
	@rm -f $@
	@echo "Installing the pinned packages into $(VENV): several minutes the first time."
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

book: $(STAMP) ## Run the notebooks where needed and build the book (PROFILE=quick for a fast look)
	$(PY) book/build.py --profile $(PROFILE)

serve: $(STAMP) ## Serve the built book on this computer (PORT=8000)
	@test -f book/_build/html/index.html || { echo "Run 'make book' first." >&2; exit 1; }
	@echo "The book is at http://127.0.0.1:$(PORT)/ (stop with Ctrl-C)"
	@$(PY) -m http.server $(PORT) --bind 127.0.0.1 --directory book/_build/html

# With a browser on the path the tests read the built book, so it is built first.
CHROMIUM := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

test: lint $(if $(CHROMIUM),book) ## Check the style and types, then run the tests
	$(PY) -m pytest

lint: $(STAMP) ## Check style, format and types only
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

# Resolve the ranges of pyproject.toml in an empty environment and write down what was chosen.
# The local part of a version (+cpu) and the GPU libraries, which depend on the computer, are left out.
# Made with Python 3.11.2, so that it serves every later 3.11 as well: some packages ask for 3.11.5.
lock: ## Make requirements.lock anew from pyproject.toml
	@"$(PYTHON)" -c "$(IS_311)" 2>/dev/null || { echo "Python 3.11 is needed." >&2; exit 1; }
	rm -rf build/lock
	"$(PYTHON)" -m venv build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check \
		"setuptools>=77" torch==$(TORCH) -e ".[book,dev]"
	@{ echo "# Every package of the environment, pinned. Made by 'make lock' from pyproject.toml"; \
	   echo "# with Python 3.11 on Linux; do not edit by hand."; \
	   build/lock/bin/python -m pip freeze --all --exclude pip --exclude-editable \
		| grep -viE '^(nvidia-|cuda-|triton)' | sed -E 's/\+[a-z0-9.]+$$//'; \
	} > build/requirements.lock
	mv build/requirements.lock requirements.lock
	rm -rf build/lock

clean: ## Remove what was built or generated (results in data/ are kept)
	rm -rf build dist *.egg-info book/_build book/_generated book/sections
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## Remove .venv as well
	rm -rf $(VENV)
