# Everything runs in ./.venv, which scripts/setup.sh makes and keeps up to date.
#   PYTHON=python3.12 make demo     another interpreter
#   PIP_ARGS='...' make test        further arguments for pip install
#   make test PYTEST_ARGS='-k softmax'

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint docs clean distclean

# A file's tests stay in one process: what they compile is compiled once.
PYTEST_ARGS ?= -n auto --dist loadfile

help:
	@echo "make demo       set up what it needs, then embed sentences with MiniLM on kernels compiled here"
	@echo "make setup      set up everything: compiling, demo, tests, lint"
	@echo "make test       the tests that are not slow (PYTEST_ARGS='...' is passed on)"
	@echo "make lint       ruff check, ruff format --check, mypy"
	@echo "make docs       the documentation as HTML in build/docs; any warning fails"
	@echo "make clean      remove caches and build outputs"
	@echo "make distclean  remove .venv too"

setup:
	@scripts/setup.sh dev

demo:
	@scripts/setup.sh demo
	.venv/bin/python -m examples.minilm

test:
	@scripts/setup.sh dev
	.venv/bin/python -m pytest -m "not slow" $(PYTEST_ARGS)

# All three run, whatever the first ones find.
lint:
	@scripts/setup.sh dev
	@status=0; set -x; \
	.venv/bin/ruff check . || status=1; \
	.venv/bin/ruff format --check . || status=1; \
	.venv/bin/mypy || status=1; \
	{ set +x; exit $$status; } 2>/dev/null

docs:
	@scripts/setup.sh dev
	.venv/bin/python -m sphinx -W --keep-going -n -q -b html docs build/docs
	@echo "build/docs/index.html"

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage htmlcov
	find . -name .venv -prune -o -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv
