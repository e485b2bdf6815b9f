# Two commands do it all: `make demo` and `make test`. Everything is installed into .venv with exact versions.
PYTHON ?= $(or $(shell command -v python3.11),python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Dagster marks `job execute` as superseded by `dg launch`; it is what CI systems know, and it works.
export PYTHONWARNINGS := ignore::UserWarning:click.core,ignore:Function `job_execute_command`
export DAGSTER_DISABLE_TELEMETRY := 1
export MLFLOW_DISABLE_TELEMETRY := true
# The UI alone, without its workers for language model scoring.
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION := false

.PHONY: demo test test-slow check ui mlflow-ui bench setup clean

setup: $(READY)

$(READY): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
		{ echo "Python 3.11 to 3.13 is needed; $(PYTHON) is another. Fix: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up $(VENV): a few minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

demo: $(READY)  ## train, evaluate and judge a flight_delays model; the first one is declared to be the first
	if trainworthy champion flight_delays; then first=; else first="-c use_cases/flight_delays/first_model.yaml"; fi; \
		dagster job execute -m pipeline.definitions -j train_flight_delays $$first
	@trainworthy verdict flight_delays

test: $(READY)  ## all tests that need nothing but the registry's packages
	pytest -m "not slow"

test-slow: $(READY)  ## tests that need a browser or more than a minute
	pytest -m slow

check: $(READY)  ## what a contributor runs before a commit
	ruff format --check .
	ruff check .
	lint-imports
	basedpyright

ui: $(READY)  ## Dagster at http://127.0.0.1:3000
	dagster dev -w workspace.yaml -h 127.0.0.1 -p 3000

mlflow-ui: $(READY)  ## MLflow at http://127.0.0.1:5000
	mlflow ui --host 127.0.0.1 --port 5000 --backend-store-uri sqlite:///$(or $(TRAINWORTHY_VAR),$(CURDIR)/var)/mlflow/mlflow.db

bench: $(READY)  ## make bench NAME=demo|flights|lifecycle|rollback
	python -m benchmarks.$(NAME)

clean:  ## remove everything that a run wrote
	rm -rf var data/flights
