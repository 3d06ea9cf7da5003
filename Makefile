# `make demo` and `make test` work from a bare clone: the environment below is built on first use.
SHELL  := bash
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test check bench clean

demo: $(READY)
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

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[lab,dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
