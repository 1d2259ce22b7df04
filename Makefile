# Two ways in: `make demo` trains a federation in under a minute, `make test` runs the tests. Both set up .venv first.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin

demo: $(VENV)/ready
	$(BIN)/python -m rffl_pl fit --config configs/digits.yaml

test: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# pytest ends with 5 where there are no such tests.
test-slow: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow || test $$? -eq 5

# On one GPU, in under 9 minutes, with the python3 and torch that are there: nothing is installed.
gpu:
	PYTHONPATH=. python3 -m pytest -m gpu tests/gpu
	PYTHONPATH=. python3 benchmarks/gpu.py

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site of the documentation, in site/.
docs: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	.ci/docs $(VENV) site

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

.PHONY: demo test test-slow gpu lint docs
