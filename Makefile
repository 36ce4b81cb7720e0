# `make test` and `make demo` need make, Python >= 3.10 and pip; they set up the rest in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test test-long test-matrix test-clients test-wheel docs pictures bench clean

help:
	@echo "make demo       train, stop, resume and fine-tune on a small data set"
	@echo "make test       ruff, mypy and the tests"
	@echo "make test-long  the tests, with those that take long"
	@echo "make test-matrix  a part of them with each TensorFlow and Keras of docs/versions.md"
	@echo "make test-clients  the programs of others in docs/clients.md"
	@echo "make test-wheel  what a wheel installs, without TensorFlow and with it"
	@echo "make docs       the documentation as a site, in build/site"
	@echo "make pictures   the pictures of README.md, from the program as it is"
	@echo "make bench      measure speed beside TensorFlow and the machine's limits"
	@echo "make clean      remove $(VENV) and what tools left behind"

setup: $(STAMP)

# Some distributions ship Python without ensurepip; virtualenv, put aside, does the same there.
$(STAMP): setup.cfg setup.py pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("tfckpt needs Python 3.10 or later; try make PYTHON=python3.12" if sys.version_info < (3, 10) else 0)'
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { \
		$(PYTHON) -m pip install --target build/virtualenv virtualenv && \
		PYTHONPATH=build/virtualenv $(PYTHON) -m virtualenv --clear $(VENV); }
	$(BIN)/python -m pip install -e '.[test]'
	touch $@

demo: $(STAMP)
	$(BIN)/python examples/digits/demo.py

# A file stays with one worker, so that TensorFlow is imported once for all of its tests. Not the
# files with the fewest tests last: those that wait for other processes are among them.
test: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy tests/typed.py
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --cov

# With long searches; each prints its seed.
test-long: $(STAMP)
	timeout --signal=INT 3h $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m ''

# Each pair of versions has an environment in .nox, 2 GB; an interpreter that is missing is skipped.
test-matrix: $(STAMP)
	test -x $(BIN)/nox || $(BIN)/python -m pip install nox
	$(BIN)/nox

# Two environments in .nox, 3 GB each, for the packages of docs/clients.md.
test-clients: $(STAMP)
	test -x $(BIN)/nox || $(BIN)/python -m pip install nox
	$(BIN)/nox -s clients clients_table

# An environment made anew, without TensorFlow, then with it.
test-wheel: $(STAMP)
	test -x $(BIN)/nox || $(BIN)/python -m pip install nox
	$(BIN)/nox -s wheel

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "built: build/site/index.html"

# Needs Chromium for the page of a run.
pictures: $(STAMP)
	$(BIN)/python -m pip install -q selenium
	for each in badges record draw; do $(BIN)/python docs/pictures/$$each.py || exit; done

bench: $(STAMP)
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .nox build dist *.egg-info .coverage .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
