# Two ways in: `make demo` trains a federation in under a minute, `make test` runs the tests. Both set up .venv first.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin

demo: $(VENV)/ready
	$(BIN)/python -m rffl_pl fit --config configs/digits.yaml

test: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Three at a time on two cores: many wait, for a rank to be given up, say. pytest ends with 5 where there are no such tests.
test-slow: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow -n 3 --dist loadfile --no-loadscope-reorder || test $$? -eq 5

# On one GPU in under 9 minutes, with the python3, torch and pytest that are there: nothing is installed. Each half ends by
# itself, as by Ctrl-C, and by force 10 seconds later; GPU_OPTIONS are the table's, say --quick.
gpu:
	PYTHONPATH=. timeout --signal INT --kill-after 10 280 \
		python3 -m pytest -c tests/gpu/pytest.ini --rootdir . tests/gpu; \
	tests=$$?; PYTHONPATH=. timeout --preserve-status --signal INT --kill-after 10 235 \
		python3 benchmarks/gpu.py --budget 5 --total 180 $(GPU_OPTIONS) && exit $$tests

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
