# The two commands: `make demo` and `make test`. Both set everything up first; nothing but Python is needed.
PYTHON ?= $(firstword $(foreach p,python3.13 python3.12 python3.11 python3 python,$(if $(shell $(p) -c 'import sys; print(sys.version_info[:2] >= (3, 11) and sys.version_info[:2] < (3, 14) or "")' 2>/dev/null | grep True),$(p))))
BIN := .venv/bin
PYTEST_ARGS ?=
ARGS ?=

# Dozens of drkit's processes are started here; without its compiled code each would compile all of it anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo bench soak adversary test test-long lint advisories unit containers docs man picture recording lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

setup: ## the environment with everything that the tests need
	@test -n "$(PYTHON)" || { echo "setup: no Python from 3.11 to 3.13 is on PATH; install one, or name it: make PYTHON=…" >&2; exit 2; }
	@$(PYTHON) tools/bootstrap.py --extra all --extra dev

demo: ## set up, then play the main job on real clusters with real data (ARGS="--keep" leaves the lab up)
	@test -n "$(PYTHON)" || { echo "setup: no Python from 3.11 to 3.13 is on PATH; install one, or name it: make PYTHON=…" >&2; exit 2; }
	@$(PYTHON) tools/bootstrap.py --extra all
	@$(BIN)/drkit demo $(ARGS)

bench: setup ## the mirror side by side with MirrorMaker 2 (ARGS="--full"; see bench/README.md)
	$(BIN)/python -m bench $(ARGS)

soak: setup ## random faults on clusters of three brokers, judged by an independent reader (ARGS="--faults 100"; see docs/soak.md)
	$(BIN)/python -m chaos.soak $(ARGS)

adversary: setup ## seeded runs of what real clusters do to logs, minimised (ARGS="--seed 1 --runs 20"; see docs/soak.md)
	$(BIN)/python -m chaos.adversary $(ARGS)

test: setup lint ## set up, then run every check, and every test but the long ones and what the seed leaves out (docs/testing.md)
	$(BIN)/python -m pytest -m "not long" $(or $(PYTEST_ARGS),-n 4 --dist loadfile)

test-long: setup ## the tests that take minutes each, and sampled groups whole: more faults, more seeds, soaks
	$(BIN)/python -m pytest -m long $(PYTEST_ARGS)

lint: setup ## formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

advisories: ## ask an advisory database about the pinned dependencies (needs the network; docs/testing.md)
	@test -n "$(PYTHON)" || { echo "setup: no Python from 3.11 to 3.13 is on PATH; install one, or name it: make PYTHON=…" >&2; exit 2; }
	@$(PYTHON) -m tools.advisories $(ARGS)

unit: setup ## only the tests that need no cluster
	$(BIN)/python -m pytest tests/unit $(PYTEST_ARGS)

containers: setup ## only the tests that need a container engine
	$(BIN)/python -m pytest -m containers $(PYTEST_ARGS) tests/integration/containers

docs: setup ## the site of documentation in build/docs/html; a link that leads nowhere fails it
	$(BIN)/python -m tools.manual site build/docs

picture: setup ## docs/demo.svg anew: the end of a real run of the demo
	$(BIN)/drkit demo --svg docs/demo.svg

recording: setup ## docs/demo-run.svg anew (and build/demo.cast): a real run of the demo, as a terminal showed it
	$(BIN)/python -m tools.recording build/demo.cast docs/demo-run.svg -- $(BIN)/drkit demo $(ARGS)

page-pictures: setup ## docs/pictures/*.webp anew: the status page in a Chromium, at 10 and at 10,000 partitions
	$(BIN)/python -m tools.page_pictures docs/pictures

man: ## a man page for each command, in build/man
	@test -n "$(PYTHON)" || { echo "setup: no Python from 3.11 to 3.13 is on PATH; install one, or name it: make PYTHON=…" >&2; exit 2; }
	@$(PYTHON) tools/bootstrap.py
	$(BIN)/python -m tools.manual man build/man

lock: setup ## resolve the jars anew and rewrite their lock files
	$(BIN)/python -m drkit.lab.toolchain lock

clean: ## remove the environment and caches of this checkout
	rm -rf build .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
