# `make demo` and `make test` work from a bare clone: the environment below is built on first use.
SHELL  := bash
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LAB    := $(VENV)/.lab
READY  := $(VENV)/.ready
PIP    := $(BIN)/pip install --quiet --constraint constraints.txt

.PHONY: demo test check bench clean

demo: $(LAB)
	$(BIN)/delayssm demo

test: $(READY) check
	$(BIN)/pytest -n auto --dist worksteal

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	set -o pipefail; $(BIN)/python -m benchmarks | tee BENCHMARKS.md.part
	mv BENCHMARKS.md.part BENCHMARKS.md

$(LAB): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[lab]'
	touch $@

$(READY): $(LAB)
	$(PIP) --editable '.[lab,baselines,ray,dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
