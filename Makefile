# demo   the main job, end to end; writes out/report.html
# test   the fast suite: under 10 minutes on 2 cores
# slow   sweeps, faults, fuzzing, real models, the wheel
# lint   ruff and mypy

PYTHON ?= python3
BIN := .venv/bin
# one thread per worker: two pytest workers share two cores
PYTEST := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

.PHONY: demo test slow lint clean
.DELETE_ON_ERROR:

demo: .venv/installed
	$(BIN)/kernels-neuron demo --out out

test: .venv/installed
	$(PYTEST) -m "not slow"

slow: .venv/installed
	$(PYTEST) -m slow

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv out
	find build registry -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +
