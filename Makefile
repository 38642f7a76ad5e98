# Works from a bare checkout with Python 3.11 or newer and make: the first target that needs it makes .venv.

PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3; do \
	if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$name; break; fi; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTRA ?= real
REAL := $(VENV)/.$(EXTRA)
# Each in a process of its own: their packages are loaded once a process, and not all in the same way.
REAL_TESTS = $$(grep -lE 'mark\.real|NEEDS_VLLM' tests/contract/test_*.py tests/real/test_*.py tests/unit/test_*.py)
CPU_WHEELS := https://download.pytorch.org/whl/cpu
JOBS ?= 2
SWEEP ?= workplace
CODE := protocol scenarios sim real invariants parity mutants reports rollproof tests

.PHONY: help install sweep test slow check bench real test-real nightly docs clean

help:
	@echo "make sweep    crash the main scenario at every step and judge (SWEEP=name for another one)"
	@echo "make test     unit and property tests, small sweeps, determinism: under 10 minutes on 2 cores"
	@echo "make slow     the mutant matrix and the long properties (CI runs them too)"
	@echo "make check    format, lint, types, tests"
	@echo "make bench    measurements that the README quotes"
	@echo "make real     install Ray, vLLM and the rest, and crash a real job on this machine's CPU (EXTRA=gpu: on its GPUs)"
	@echo "make test-real  the tests of the real world"
	@echo "make nightly  everything without a time limit"
	@echo "make docs     events.md, figures.md and faults.md in docs/ from the types"

install: $(READY)

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer was not found: set PYTHON=/path/to/python"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# torch's CPU build is on its own index; where pip finds it by itself, that index is not asked.
$(REAL): pyproject.toml | $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,$(EXTRA)]' || \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --extra-index-url $(CPU_WHEELS) --editable '.[dev,$(EXTRA)]'
	@touch $@

real: $(REAL)
	$(BIN)/rollproof models verify-engine --once
	$(BIN)/rollproof run turn --world real

test-real: $(REAL)
	$(BIN)/rollproof models verify-engine --once
	for file in $(REAL_TESTS); do \
		$(BIN)/python -m pytest -m "real and not nightly" $$file; code=$$?; test $$code -eq 0 || test $$code -eq 5 || exit $$code; done

sweep: $(READY)
	$(BIN)/rollproof sweep $(SWEEP)

test: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow and not real and not nightly"

slow: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "slow and not real and not nightly"

check: $(READY)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(MAKE) test

bench: $(READY)
	for name in ledger routes prefix-io; do $(BIN)/rollproof bench $$name || exit $$?; done

nightly: export ROLLPROOF_SEEDS = 20
nightly: check slow test-real
	$(BIN)/python -m pytest -m nightly
	for name in workplace sibling fixed-order trainer-only; do $(BIN)/rollproof sweep $$name --seeds 0:5 || exit $$?; done

docs: $(READY)
	$(BIN)/python -m protocol.vocabulary > docs/events.md
	$(BIN)/python -m reports.figures.page > docs/figures.md
	$(BIN)/python -m scenarios.page > docs/faults.md

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
