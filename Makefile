# Two commands on a fresh machine: `make demo` and `make test`. Each sets up what it needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
UV      = $(BIN)/uv
# Two thirds of the time of a test is waiting: three processes a core. Browsers, clusters and mutants wait less: two.
PROCESSES ?= $(shell expr 3 '*' $$(getconf _NPROCESSORS_ONLN))
check mutants: PROCESSES = $(shell expr 2 '*' $$(getconf _NPROCESSORS_ONLN))
COMPILE = pip compile pyproject.toml --group build --universal --python-version 3.11 --generate-hashes \
          --no-emit-index-url --no-emit-find-links --quiet --upgrade

# Debian keeps servers (nginx) in /usr/sbin, which is on no ordinary user's path.
export PATH := $(PATH):/usr/sbin
# What is compiled once need not be compiled by every process of a suite: a third of its time, where an image sets this.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check attack harness mutants lint fmt bench bench-instructions soak simulate dist lock clean needs tools
help:
	@echo 'make demo    a real evaluation run becomes a signed, verified result; a tampered copy is refused'
	@echo 'make test    lint, types and tests'
	@echo 'make check   the longer suite: what make test runs, and the tests marked long'
	@echo 'make attack  further rounds of faults, hostile messages and run files, and floods: an hour'
	@echo 'make harness the evaluation frameworks themselves: does each run say what we say of it?'
	@echo 'make mutants small faults in the code that must have none: does a test notice each? Up to an hour'
	@echo 'make fmt     format the code, and correct what ruff can'
	@echo 'make bench   what the primitives, the line and the service under load cost, beside the floor of the same run'
	@echo 'make bench-instructions   how many instructions a request takes, by step, beside the committed table'
	@echo 'make soak    a million requests, good and bad: memory, descriptors and keys stay bounded'
	@echo 'make simulate   a month of 200 honest integrations and of every attacker on the real admission script: whom do the limits of abuse find?'
	@echo 'make dist    the sdist and the wheel of this commit, built twice and compared; a bill of materials; digests'
	@echo 'make lock    compile run.lock, submit.lock, check.lock and dev.lock anew'

needs:
	@command -v $(PYTHON) >/dev/null || { echo 'make: $(PYTHON) is missing. On Debian: apt-get install python3'; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'make: Python 3.11 or newer is needed; say PYTHON=/path/to/it'; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo 'make: the venv module is missing. On Debian: apt-get install python3-venv'; exit 1; }
	@command -v cc >/dev/null || echo 'make: no C compiler (cc); where a dependency has no wheel, install it: apt-get install gcc libc6-dev'

# $(1): the lock. --no-deps: the lock alone decides what is installed.
define install
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'Installing what $(1) lists ...'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(1)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
endef

$(VENV)/run.done: run.lock pyproject.toml | needs
	$(call install,run.lock)

$(VENV)/dev.done: dev.lock pyproject.toml | needs
	$(call install,dev.lock)
	@touch $(VENV)/run.done

demo: $(VENV)/run.done
	@$(BIN)/issuer demo

tools: needs
	@$(PYTHON) -m tests.support.tools

# The frameworks themselves: `make check` runs them, and reads what they write.
$(VENV)/check.done: check.lock pyproject.toml | needs
	$(call install,check.lock)
	@touch $(VENV)/run.done $(VENV)/dev.done

fmt: $(VENV)/dev.done
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lint: $(VENV)/dev.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Lint runs beside the tests, which wait for half of their time. With a blank in place of `=`, pytest takes an existing
# file for the place of the tests, and does not load tests/conftest.py.
test: $(VENV)/dev.done
	@$(MAKE) --no-print-directory lint >$(VENV)/lint.txt 2>&1 & lint=$$!; \
	$(BIN)/pytest -q --processes=$(PROCESSES) -m 'not long' --skips=$(VENV)/skips.txt; tests=$$?; \
	wait $$lint; linted=$$?; cat $(VENV)/lint.txt $(VENV)/skips.txt; exit $$((tests | linted))

# The list of missing tools comes first: a run takes half an hour.
check: tools $(VENV)/check.done lint
	$(BIN)/pytest -q --processes=$(PROCESSES) --every-tool --timeout 900

attack: $(VENV)/dev.done
	$(BIN)/pytest -q --processes=2 --timeout 900 -m attack
	$(BIN)/python -m tests.bench.flood

harness: $(VENV)/dev.done
	$(BIN)/python -m tests.harness

mutants: $(VENV)/dev.done
	$(BIN)/python -m tests.mutants --jobs $(PROCESSES)

bench: $(VENV)/check.done
	$(BIN)/python -m tests.bench
	$(BIN)/python -m tests.bench.table
	$(BIN)/python -m tests.bench.load
	$(BIN)/python -m tests.bench.oidc_provider
	$(BIN)/python -m tests.bench.store
	$(BIN)/python -m tests.bench.store_counts
	$(BIN)/python -m tests.bench.flood
	$(BIN)/python -m tests.bench.large_bodies
	$(BIN)/python -m tests.bench.keys
	$(BIN)/python -m tests.bench.many_policies
	$(BIN)/python -m tests.bench.log
	$(BIN)/python -m tests.bench.submit
	$(BIN)/python -m tests.bench.browser

bench-instructions: $(VENV)/dev.done
	$(BIN)/python -m tests.bench.instructions

soak: $(VENV)/dev.done
	$(BIN)/python -m tests.bench.soak

simulate: $(VENV)/dev.done
	$(BIN)/python -m tests.simulation

dist: $(VENV)/dev.done
	@$(BIN)/python -m release

lock: $(VENV)/dev.done
	$(UV) $(COMPILE) --extra server --extra embedded -o run.lock
	$(UV) $(COMPILE) --all-extras -c run.lock -o check.lock
	$(UV) $(COMPILE) --extra hub -c check.lock -o submit.lock
	$(UV) $(COMPILE) --extra server --extra embedded --extra pkcs11 --extra aws --extra hub --extra postgresql --extra dev -c check.lock -o dev.lock

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache dist
