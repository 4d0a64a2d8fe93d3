.PHONY: bench dev docs install readme-results reference run test test-nightly ui
CANDIDATES := python3.11 python3.12 python3.13 python3 python
IS_SUPPORTED := import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for each in $(CANDIDATES); do if $$each -c '$(IS_SUPPORTED)' 2>/dev/null; then echo $$each; break; fi; done)
ifneq ($(shell command -v uv),)
INSTALLER := uv
INSTALL = uv pip install --python .venv/bin/python --quiet -c constraints.txt -e
else
INSTALLER := pip
INSTALL = .venv/bin/pip install --disable-pip-version-check --no-compile --quiet -c constraints.txt -e
endif

.venv/.run: pyproject.toml constraints.txt
	@$(or $(PYTHON),false) -c '$(IS_SUPPORTED)' || { echo "Python 3.11, 3.12 or 3.13 with venv is needed; install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python"; exit 1; }
	@echo "Creating .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv
	@echo "Installing the pinned packages that running needs, with $(INSTALLER); this takes minutes, once"
	@$(INSTALL) .
	@echo "Compiling the packages"
	@.venv/bin/python -m compileall -qq -j 0 -x /tests/ .venv/lib || true # on all cores; some packages bring templates
	@touch $@

.venv/.dev: .venv/.run
	@echo "Installing the packages that tests need, with $(INSTALLER)"
	@$(INSTALL) '.[dev]'
	@touch $@

.venv/.docs: .venv/.dev
	@echo "Installing the packages that the documentation needs, with $(INSTALLER)"
	@$(INSTALL) '.[dev,docs]'
	@touch $@

.venv/.bench: .venv/.dev
	@echo "Installing the packages that benchmarks compare with, with $(INSTALLER)"
	@$(INSTALL) '.[dev,bench]'
	@touch $@

install: .venv/.run

dev: .venv/.dev

run: .venv/.run
	@echo "Running nvtrader materialize: the whole graph, recomputing only what changed"
	@.venv/bin/nvtrader materialize

ui: .venv/.run
	.venv/bin/nvtrader ui

test: .venv/.dev
	scripts/check

test-nightly: .venv/.dev
	HYPOTHESIS_PROFILE=nightly scripts/check --nightly

docs: .venv/.docs
	.venv/bin/python scripts/build_docs.py

reference: .venv/.dev
	.venv/bin/python -m scripts.reference

readme-results: .venv/.run
	.venv/bin/python -m scripts.readme_results .

bench: .venv/.bench
	scripts/bench $(NAMES)
