# Everything a contributor or CI runs. `make demo` and `make test` need nothing but a fresh clone:
# each creates .venv and installs into it first, once.

PYTHON ?= python3
ARGS ?=

PYTHON_MIN := 3.11
PYTHON_MAX := 3.13
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test test-slow lint format types clean

help: ## List the targets (the default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile
	@echo "PYTHON=python3.12 picks the interpreter; ARGS='...' is passed on by demo, test and test-slow."

install: $(STAMP) ## Create .venv and install the package with what it takes to work on it

demo: $(STAMP) ## Train on digits and toy data, print a table, write figures and a report
	$(BIN)/gemfi demo $(ARGS)

test: $(STAMP) ## Run the fast suite
	$(BIN)/python -m pytest -n 2 $(ARGS)

test-slow: $(STAMP) ## Run the slow suite: kills, long simulations
	$(BIN)/python -m pytest -m slow $(ARGS)

lint: $(STAMP) ## Check style, formatting and which module imports which
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'

format: $(STAMP) ## Fix what can be fixed and format
	$(BIN)/python -m ruff check --fix-only --quiet .
	$(BIN)/python -m ruff format .

types: $(STAMP) ## Check types
	$(BIN)/python -m mypy

clean: ## Remove .venv, caches and builds
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

CHECK_PYTHON = import sys; \
	low, high = (tuple(map(int, v.split("."))) for v in ("$(PYTHON_MIN)", "$(PYTHON_MAX)")); \
	found = sys.version_info[:2]; \
	sys.exit(None if low <= found <= high else \
	"error: gemfi needs Python $(PYTHON_MIN) to $(PYTHON_MAX), but $(PYTHON) is %d.%d; try: make PYTHON=python$(PYTHON_MIN)" % found)

# The stamp is touched last, so an install that was interrupted is done again. Pip ignores -c when it
# builds the package itself; the two variables (older and newer pip) pin the build tools as well.
$(STAMP): pyproject.toml constraints.txt tests/parity.txt
	@command -v $(PYTHON) >/dev/null || { echo "error: gemfi needs Python $(PYTHON_MIN) to $(PYTHON_MAX), but $(PYTHON) was not found; try: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c '$(CHECK_PYTHON)'
	@rm -f $@
	@echo "Installing into .venv (once; a minute or two)"
	@$(BIN)/python -c 'import pip' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	@PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
		$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps -r tests/parity.txt
	@touch $@
