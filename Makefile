# What a developer types; `make` alone lists it. Everything runs from .venv, which is remade only when
# pyproject.toml or a lock changes.

BIN     := .venv/bin
READY   := .venv/.ready
EXAMPLE := experiment=experiments/tutorials/hello_world.py prefix=out

# What `make run` runs, and where it puts the results.
EXPERIMENT := experiments/tutorials/hello_world.py
PREFIX     := out

# A word for the shell, whatever it contains.
quoted = '$(subst ','\'',$(1))'

# With `user = true` in a machine's pip settings, pip refuses to install into a virtual environment.
export PIP_USER := 0

.DEFAULT_GOAL := help
.PHONY: help setup run quick test smoke test-faults lint hooks bench browser slurm debootstrap requirements clean
.PHONY: lint-style lint-types lint-rooms lint-workflow

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The links to the profiles are looked at each time: they may lead to a checkout that is gone by now.
setup: $(READY) ## make .venv with the locked dependencies; PYTHON=... chooses the interpreter
	@$(BIN)/marin-rules profiles link --quiet

run: setup ## run a tutorial; EXPERIMENT=... names another experiment, PREFIX=... another place than out/
	$(BIN)/snakemake --config experiment=$(call quoted,$(EXPERIMENT)) prefix=$(call quoted,$(PREFIX))

# A test that starts a process is marked so, or fails: tests/support/processes.py. Half of what it takes to import the
# tests is pytest's rewriting of them, whose result is kept even where Python is told to write no bytecode.
quick: setup lint ## lint, then run the tests that start no process: about a minute
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist worksteal -m "not processes and not faults and not smoke" tests

# More workers than cores: many tests wait for Slurm, for leases or for each other.
test: setup lint browser slurm debootstrap ## lint, then run the tests
	$(BIN)/python -m pytest -n 4 --dist worksteal -m "not faults and not smoke" tests

# The tutorial at full length, with its results checked: its test in `make test` has fewer steps.
smoke: setup ## from pages to an evaluated model on the CPU: minutes
	$(BIN)/python -m pytest -m smoke tests

test-faults: setup ## the fault tests at full counts: more than an hour
	$(BIN)/python -m pytest -m faults tests

# All checks at once, each with its output in one piece, and to the end even if one fails. (Make 3.81, which macOS has,
# knows no --output-sync.)
lint: setup ## check style, types and the workflow
	@$(MAKE) --no-print-directory --jobs --keep-going $(if $(filter output-sync,$(.FEATURES)),--output-sync) \
		lint-style lint-types lint-rooms lint-workflow

lint-style:
	$(BIN)/ruff check
	$(BIN)/ruff format --check

lint-types:
	$(BIN)/mypy

lint-rooms:
	$(BIN)/lint-imports --no-logo

lint-workflow:
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/snakemake --lint --config $(EXAMPLE)

hooks: setup ## lint before each commit, with pre-commit
	$(BIN)/pre-commit install

bench: setup ## measure, as ratios against peers; installs one of them first
	$(UV_INSTALL) --require-hashes -r requirements/bench.txt
	$(BIN)/python -m benchmarks

browser:
	scripts/ensure-chromium

slurm:
	scripts/ensure-slurm

debootstrap:
	scripts/ensure-debootstrap

clean: ## remove .venv, caches and builds; keeps out/, because results are yours to delete
	rm -rf .venv .snakemake .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist report.html
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the environment

# pip brings a pinned uv, uv brings the rest. An environment without pip, or of an older Python, is replaced.
$(BIN)/uv: requirements/bootstrap.txt
	@$(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null || \
		{ python=$$(scripts/find-python) && echo "making .venv with $$python" && "$$python" -m venv --clear .venv; }
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/bootstrap.txt
	@touch $@

UV_INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python

# uv does not read pip's settings, so a machine that names its index only there falls back on pip.
# Where Python may not write bytecode it is compiled here, once (20 s): else every start of Snakemake
# would compile it again (4 s).
$(READY): $(BIN)/uv requirements/dev.txt pyproject.toml
	$(UV_INSTALL) $(if $(PYTHONDONTWRITEBYTECODE),--compile-bytecode) --require-hashes -r requirements/dev.txt || \
		$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.txt
	$(UV_INSTALL) --no-deps --no-build-isolation --editable .
	$(BIN)/marin-rules profiles link
	@touch $@

# --- the locks

# Small packages of lm-eval's.
FROM_SOURCE := --no-binary rouge-score --no-binary sqlitedict --no-binary word2number

COMPILE = $(BIN)/uv pip compile --quiet --generate-hashes --universal --python-version 3.12 \
	--no-emit-index-url --custom-compile-command 'make requirements' $(if $(UPGRADE),--upgrade)

# dev.txt holds all of core.txt and is compiled first, so that the two can never disagree.
# The locks of groups hold what steps need and nothing of the driver's. `train` cannot agree with dev.txt: Levanter lags
# behind fsspec. What is named there has no wheel; a lock that lets in no other source keeps it so.
requirements: $(READY) ## compile the locks from pyproject.toml; UPGRADE=1 moves them to newer versions
	$(COMPILE) --extra dev -o requirements/dev.txt pyproject.toml
	$(COMPILE) -c requirements/dev.txt -o requirements/core.txt pyproject.toml
	$(COMPILE) --extra gcp -c requirements/dev.txt -o requirements/gcp.txt pyproject.toml
	$(COMPILE) --extra bench -c requirements/dev.txt -o requirements/bench.txt pyproject.toml
	$(BIN)/marin-rules lock data fasttext gguf -- -c requirements/dev.txt $(if $(UPGRADE),--upgrade)
	$(BIN)/marin-rules lock train -- $(FROM_SOURCE) $(if $(UPGRADE),--upgrade)
	$(BIN)/marin-rules lock train-gpu train-tpu -- -c requirements/train.txt $(FROM_SOURCE) $(if $(UPGRADE),--upgrade)
	echo uv | $(COMPILE) -c requirements/dev.txt -o requirements/bootstrap.txt -
