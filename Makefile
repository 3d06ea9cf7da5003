# `make demo` and `make test` work from a bare clone: the environment below is built on first use.
SHELL  := bash
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LAB    := $(VENV)/.lab
READY  := $(VENV)/.ready
PIP    := $(BIN)/pip install --quiet --constraint constraints.txt

.PHONY: demo test test-all fuzz check bench docs clean

demo: $(LAB)
	$(BIN)/delayssm demo

test: $(READY) check
	$(BIN)/pytest -n auto --dist worksteal -m 'not slow'

# What takes longer than ten minutes on two cores together with the rest.
test-all: test
	$(BIN)/pytest -n auto --dist loadfile -m slow

# Cases of everything that comes from outside, 3,500 of each kind; the tests run some of them.
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Measures everything again. To resume after an interruption, run the commands below the first.
bench: $(READY)
	rm -rf runs/bench
	$(BIN)/delayssm reproduce --work runs/bench $$($(BIN)/python -c \
		'from delayssm_lab.studies.catalogue import measurements; print(*(study.name for study in measurements()))')
	$(BIN)/python -m docs.refresh

# The site, in build/site. Without network, once the environment is there.
docs: $(READY)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -d build/doctrees -c docs . build/site
	@echo "the site is in build/site/index.html"

$(LAB): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[lab]'
	touch $@

$(READY): $(LAB)
	$(PIP) --editable '.[lab,baselines,estimators,hf,hub,onnx,ray,trackers,docs,dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
