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
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow -n 2 --dist loadfile --no-loadscope-reorder || test $$? -eq 5

# On one GPU, meant for under 9 minutes, with the python3, torch and pytest that are there: nothing is installed.
gpu:
	PYTHONPATH=. python3 -m pytest -c tests/gpu/pytest.ini --rootdir . tests/gpu; \
	tests=$$?; PYTHONPATH=. python3 benchmarks/gpu.py --budget 5 --total 240 && exit $$tests

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
