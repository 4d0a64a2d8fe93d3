.PHONY: bench docs install readme-results run test ui
PYTHON ?= python3.11
STAMP := .venv/.installed

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	.venv/bin/python -m compileall -qq -j 0 -x /tests/ .venv/lib || true # on all cores; some packages bring templates
	touch $(STAMP)

install: $(STAMP)

run: install
	.venv/bin/nvtrader materialize

ui: install
	.venv/bin/nvtrader ui

test: install
	scripts/check

docs: .venv/.docs
	.venv/bin/python scripts/build_docs.py

.venv/.docs: $(STAMP)
	.venv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	touch .venv/.docs

readme-results: install
	.venv/bin/python scripts/readme_results.py .

bench: .venv/.bench
	scripts/bench $(NAMES)

.venv/.bench: $(STAMP)
	.venv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	touch .venv/.bench
