# Everything is installed into .venv, nothing beside it. PYTHON chooses the interpreter, when .venv is made:
#     make PYTHON=python3.12 test

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
ifndef SIDE_BY_SIDE
.NOTPARALLEL:
endif
.DELETE_ON_ERROR:

# pip and pyright should not look on the network whether there is something newer than what was asked for.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# Nor should litellm look for prices there, three times, whenever a process imports it.
export LITELLM_LOCAL_MODEL_COST_MAP := True
# Tests start hundreds of processes, and pytest rewrites every test file: each is compiled once and kept.
unexport PYTHONDONTWRITEBYTECODE

version = $(shell $(1) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)

ifneq ($(wildcard $(BIN)/python),)
ifneq ($(origin PYTHON),file)
ifneq ($(call version,$(PYTHON)),$(call version,$(BIN)/python))
$(info Note: $(VENV) has Python $(call version,$(BIN)/python) and is kept. To use $(PYTHON): make distclean)
endif
endif
endif

# A file's tests stay together: they share their stack. tests/conftest.py puts the longest files first.
# Tests of the proof wait a lot, so there are more processes than cores; each process costs five seconds.
BY_FILE = --dist loadfile --no-loadscope-reorder
PROCESSES ?= 4
PYTEST = $(BIN)/pytest -n $(PROCESSES) $(BY_FILE)
QUICK  = tests/unit tests/lua
# Newer tools warn of what older libraries do; those warnings are no errors with the lowest versions.
LOWEST = archive,bedrock,datasets,embedded,flower,otel,pandas,parquet,promptfoo,test,vertex
LOWEST_TOOLS = cryptography ollama pytest-randomly pytest-timeout pytest-xdist trustme kubernetes-validate
PROOF  = tests/contract tests/integration tests/chaos
# Vendors' SDKs take ten seconds to import, and each process imports what it collects: one process runs their tests.
SDKS   = tests/edge/sdk
# Tests that play lanes and whole deployments in virtual time depend on nothing outside: what has passed is recorded.
# Some of the generated providers are new in every run.
VIRTUAL     = tests/lua tests/lab tests/simulation
GENERATED   = tests/simulation/test_zoo.py
PASSED      = tests/passed-in-virtual-time.sha256
HAVE_PASSED = $(if $(ALWAYS),false,cmp -s $(VENV)/played $(PASSED))

# Tests of real processes share two cores with others, which may stall for seconds. What fails beside others
# runs once more, alone; it has failed if it fails there, as with every defect that needs no load.
define beside_others
@$(PYTEST) $(1) || { code=$$?; [ $$code = 1 ] || exit $$code; \
    printf '\n== %s\n' 'tests: those that failed beside others, alone'; \
    $(BIN)/pytest -v -n 0 --maxfail 5 --randomly-seed last --last-failed --last-failed-no-failures none $(1); }
endef

# Virtual time keeps a core busy while the other tests wait for processes, browsers and containers. Without most of
# it, more tests can share the cores; browsers and containers need more of them.
define beside_virtual_time
@$(BIN)/python -m tests.support.passed >$(VENV)/played
@$(MAKE) --no-print-directory PROCESSES=1 $(if $(EDGE),test-sdks) virtual-time >$(VENV)/virtual-time.log 2>&1 & \
    virtual=$$!; \
    $(MAKE) --no-print-directory PROCESSES=$$($(HAVE_PASSED) && echo $(if $(EDGE),4,6) || echo 3) proof $(1); code=$$?; \
    wait $$virtual || code=$$?; cat $(VENV)/virtual-time.log; exit $$code
endef

comma := ,
step = @printf '\n== %s\n' '$(1)'

# uv needs a third of pip's CPU time. It reads no pip.conf, so where it cannot install, pip does.
UV = 'uv>=0.9,<1'
define install
@{ $(BIN)/python -m pip install -qq $(UV) && \
    $(BIN)/uv pip install -q --python $(BIN)/python $(1); } || { \
    echo 'uv could not install it; pip tries now, which takes some minutes' >&2; \
    $(BIN)/python -m pip install -qq $(1); }
endef

##@ Use

.PHONY: help
help: ## Show this
	@awk 'BEGIN { FS = ":.*## " } \
	    /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	    /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: $(VENV)/.demo ## Run the demonstration: embedded Redis, simulated providers, a scheduler, two workers
	@$(BIN)/fairlane demo $(ARGS)

# `make bench scale` is `make bench ARGS=scale`: what follows bench are names of benchmarks, not targets.
ifeq ($(firstword $(MAKECMDGOALS)),bench)
MEASURED := $(wordlist 2,99,$(MAKECMDGOALS))
.PHONY: $(MEASURED)
$(MEASURED): bench ; @:
endif

.PHONY: bench
bench: $(VENV)/.installed ## Measure, and print ratios: make bench scale, or ARGS="scale --quick"
	@$(BIN)/python -m tests.benchmarks $(MEASURED) $(ARGS)

.PHONY: bench-peers
bench-peers: $(VENV)-peers/.installed ## The same calls by aiohttp, Celery, LiteLLM's router (installed apart) and Fairlane
	@$(BIN)/python -m tests.benchmarks peers $(ARGS)

.PHONY: simulate
simulate: $(VENV)/.installed ## Rehearse how lanes detect their limits, and write docs/control (ARGS=… replaces that)
	@$(BIN)/python -m tests.benchmarks.control $(or $(ARGS),--out docs/control)

.PHONY: zoo
zoo: $(VENV)/.installed ## Compare lanes on generated providers with an oracle and peers (ARGS="--seed N": one again)
	@$(BIN)/python -m tests.benchmarks.zoo --out zoo-results $(ARGS)

##@ Document

.PHONY: docs
docs: $(VENV)/.installed ## Build the documentation's site into site/; a broken link or a page left out is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo 'It begins with site/index.html'

##@ Check

.PHONY: test
test: check quick proof-beside-virtual-time ## All of it: check, quick, proof and virtual-time; EDGE=1 adds test-edge

.PHONY: check
check: $(VENV)/.installed ## Format, lint, imports and types, side by side: about a minute
	@$(MAKE) --no-print-directory --output-sync=target -j 3 SIDE_BY_SIDE=1 pyright mypy format lint imports

.PHONY: quick
quick: $(VENV)/.installed ## Unit and script tests, without the slow ones
	$(call step,tests: quick)
	@$(BIN)/pytest -n 3 $(BY_FILE) --tier quick $(QUICK) $(ARGS)

.PHONY: proof
proof: $(VENV)/.installed ## Tests with real processes and with faults
	$(call step,tests: proof$(if $(TOO), and edge))
	$(call beside_others,--tier proof tests/unit $(PROOF) $(TOO) $(ARGS))

.PHONY: test-edge
test-edge: $(VENV)/.installed ## Vendors' SDKs, browser, containers, deployment files and documents
	$(call step,tests: edge)
	$(call beside_others,--tier proof tests/edge $(ARGS))

.PHONY: test-sdks
test-sdks: PROCESSES = 1
test-sdks: $(VENV)/.installed ## Vendors' SDKs against the simulated provider
	$(call step,tests: SDKs)
	$(call beside_others,-o cache_dir=$(VENV)/sdks-cache --tier proof $(SDKS))

.PHONY: virtual-time
virtual-time: $(VENV)/.installed ## Lanes in virtual time, unless this very code has passed (ALWAYS=1 plays them again)
	$(call step,tests: virtual time)
	@$(BIN)/python -m tests.support.passed >$(VENV)/played
	@! $(HAVE_PASSED) || echo 'All have passed on this very code ($(PASSED)): only the generated providers are played'
	$(call beside_others,-o cache_dir=$(VENV)/virtual-time-cache --tier proof \
	    $$($(HAVE_PASSED) && echo $(GENERATED) || echo $(VIRTUAL)))
	@cp $(VENV)/played $(PASSED)

.PHONY: proof-beside-virtual-time
proof-beside-virtual-time: $(VENV)/.installed
	$(call beside_virtual_time,$(if $(EDGE),TOO='tests/edge --ignore=$(SDKS)'))

.PHONY: format
format: $(VENV)/.installed ## Check the formatting
	$(call step,format: ruff)
	@$(BIN)/ruff format --check .

.PHONY: lint
lint: $(VENV)/.installed ## Lint
	$(call step,lint: ruff)
	@$(BIN)/ruff check .

.PHONY: imports
imports: $(VENV)/.installed ## Check that imports point down only
	$(call step,imports: import-linter)
	@$(BIN)/lint-imports --no-logo

.PHONY: mypy
mypy: $(VENV)/.installed ## Types, strictly
	$(call step,types: mypy)
	@$(BIN)/mypy
	@$(BIN)/mypy examples deploy/site

.PHONY: pyright
pyright: $(VENV)/.installed ## Types, as editors see them
	$(call step,types: pyright)
	@$(BIN)/pyright

.PHONY: pytest
pytest: $(VENV)/.installed ## Tests of your choice: make pytest ARGS="tests/unit -k lanes -x"
	@$(BIN)/pytest $(ARGS)

.PHONY: coverage
coverage: $(VENV)/.installed ## Quick and proof with branch coverage
	@$(PYTEST) --cov --cov-report=term $(QUICK) $(PROOF) tests/simulation $(ARGS)

.PHONY: test-servers
test-servers: $(VENV)/.installed ## Tests of scripts and access rules on another server: SERVER=/path/to/redis-server
	$(call step,tests: $(or $(SERVER),redis-server))
	@TEST_SERVER=$(or $(SERVER),redis-server) $(PYTEST) -m servers tests/unit tests/lua tests/contract $(ARGS)

.PHONY: test-lowest
test-lowest: $(BIN)/python ## The quick tests with the oldest versions that pyproject.toml admits
	$(call step,tests: lowest versions)
	@$(BIN)/python -m pip install -qq $(UV)
	@$(PYTHON) -m venv --clear $(VENV)-lowest
	@$(BIN)/uv pip install -q --python $(VENV)-lowest/bin/python --resolution lowest-direct --editable '.[$(LOWEST)]'
	@$(VENV)-lowest/bin/python -m pip install -qq $(LOWEST_TOOLS)
	@$(VENV)-lowest/bin/pytest -n 4 $(BY_FILE) -o filterwarnings=default --tier quick $(QUICK) $(ARGS)

.PHONY: test-brokers
test-brokers: $(VENV)/.installed ## Try RabbitMQ as the broker (installs rabbitmq-server by apt-get where it is missing)
	$(call step,tests: RabbitMQ)
	@$(BIN)/pytest -m brokers tests/integration/test_rabbitmq.py $(ARGS)

.PHONY: test-trackers
test-trackers: $(VENV)-trackers/.installed ## Export to the real MLflow, Phoenix and Inspect (installs them apart: 1.1 GB)
	$(call step,tests: trackers)
	@$(BIN)/pytest -m trackers tests/edge/trackers $(ARGS)

.PHONY: test-extras
test-extras: $(VENV)/.installed ## Install the wheel with each extra on each Python that is here (a quarter of an hour)
	$(call step,tests: extras of the wheel)
	@$(PYTEST) -m extras tests/edge/packaging $(ARGS)

.PHONY: test-promptfoo
test-promptfoo: $(VENV)/.installed ## Compare verdicts with promptfoo's own command (installs it with npm: 1.4 GB)
	$(call step,tests: promptfoo)
	@$(BIN)/pytest -m promptfoo tests/edge/promptfoo $(ARGS)

.PHONY: test-operators
test-operators: $(VENV)/.installed ## Check resources of KEDA and Prometheus' operator (installs their models with npm: 35 MB)
	$(call step,tests: operators)
	@$(BIN)/pytest -m operators tests/edge/deploy $(ARGS)

.PHONY: chaos
chaos: $(VENV)/.installed ## Play fresh schedules of faults on real processes, and check the promises (ARGS="--seed N": one again)
	@$(BIN)/python -m tests.faults $(ARGS)

.PHONY: compose-check
compose-check: $(VENV)/.installed ## Try docker-compose.yml: scale, drain, stop the leader, restart Redis (needs an engine)
	@$(BIN)/python -m tests.compose $(ARGS)

##@ Change

.PHONY: fmt
fmt: $(VENV)/.installed ## Format, and fix what can be fixed
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

.PHONY: docs-config
docs-config: $(VENV)/.installed ## Write docs/configuration.md from the settings models
	@$(BIN)/python deploy/site/configuration.py docs/configuration.md

.PHONY: lock
lock: $(BIN)/python ## Write the lock files: versions and hashes for development and images
	@$(BIN)/python -m pip install -qq $(UV)
	@$(LOCK) --extra dev --output-file requirements-dev.lock
	@$(LOCK) --extra flower --output-file deploy/docker/requirements.lock

.PHONY: lock-image
lock-image: $(VENV)/.installed ## Pin the images' base image by the digest that its tag has now; asks its registry
	@$(BIN)/python deploy/docker/pin_base_image.py

LOCK = $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header pyproject.toml

.PHONY: docs-cli
docs-cli: $(VENV)/.installed ## Write docs/cli.md from the commands
	@$(BIN)/python deploy/site/command_line.py

##@ Set up and take down

.PHONY: install
install: $(VENV)/.used ## Make .venv with Fairlane, its own Redis and Flower: what a user needs

.PHONY: develop
develop: $(VENV)/.installed ## Make .venv with the development tools, too (targets that need them do so by themselves)

.PHONY: clean
clean: ## Remove what tools have cached and built
	@rm -rf .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist site
	@find shared scheduler workers tests -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## clean, and remove .venv and the data of local stacks
	@rm -rf $(VENV) $(VENV)-lowest $(VENV)-trackers $(VENV)-peers .fairlane demo-results bench-results zoo-results chaos-results

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo 'Fairlane needs Python 3.11 or newer; "$(PYTHON)" is $(or $(call version,$(PYTHON)),not there).' >&2; \
	    echo 'Name a newer one: make PYTHON=python3.12 $(MAKECMDGOALS)' >&2; exit 1; }
	@printf 'Making %s with %s\n' '$(VENV)' "$$($(PYTHON) -V)"
	@$(PYTHON) -m venv $(VENV) || { \
	    rm -rf $(VENV); \
	    echo 'Python could not make a virtual environment. On Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo 'Installing Fairlane into $(VENV) (the first time this takes about a minute)'
	$(call install,--editable '.[embedded]')
	@touch $@

$(VENV)/.used: pyproject.toml | $(BIN)/python
	@echo 'Installing Fairlane into $(VENV) (the first time this takes about a minute)'
	$(call install,--editable '.[embedded$(comma)flower]')
	@touch $(VENV)/.demo $@
	@echo 'To use it: . $(BIN)/activate && fairlane up --simulate --flower'

$(VENV)/.installed: pyproject.toml requirements-dev.lock | $(BIN)/python
	@echo 'Installing Fairlane and its development tools into $(VENV) (the first time this takes a minute or two)'
	$(call install,--require-hashes --requirement requirements-dev.lock)
	$(call install,--no-deps --editable .)
	@touch $(VENV)/.demo $(VENV)/.used $@

# MLflow, Phoenix and Inspect contradict requirements-dev.lock, so they live beside it.
$(VENV)-trackers/.installed: pyproject.toml | $(VENV)/.installed
	@echo 'Installing MLflow, Phoenix and Inspect into $(VENV)-trackers (the first time this takes a minute)'
	@$(PYTHON) -m venv --clear $(VENV)-trackers
	@$(BIN)/uv pip install -q --python $(VENV)-trackers/bin/python \
	    --editable '.[embedded,inspect,mlflow,phoenix]' 'arize-phoenix>=20'
	@touch $@

# LiteLLM alone, as its users install it, so that its versions are its own.
$(VENV)-peers/.installed: pyproject.toml | $(VENV)/.installed
	@echo 'Installing LiteLLM into $(VENV)-peers (the first time this takes half a minute)'
	@$(PYTHON) -m venv --clear $(VENV)-peers
	@$(BIN)/uv pip install -q --python $(VENV)-peers/bin/python 'litellm>=1.106,!=1.107.0'
	@touch $@
