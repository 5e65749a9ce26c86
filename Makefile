# Every target sets up what it needs in .venv; a second call does not do it again.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python
READY  := $(VENV)/.ready

CUDA    := tests/cuda tests/devices
BENCHES := tests/benches
BESIDE  := tests/io tests/peers tests/sharded tests/interop

.PHONY: venv bench peers asv dashboard regress report test test-cpu test-cuda test-benches test-beside test-peers test-sorix test-browser test-gate lint clean

venv: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("fastemb needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# OpenBLAS picks its kernels by CPU unless told otherwise; a baseline has to run on the ones it would pick.
bench: $(READY)
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(RUN) -m benches

# FBGEMM, gensim and their torch have an environment of their own, for the benchmark; the tests that take torch as an
# oracle run there too. FBGEMM asks for more than its CPU operators need.
peers: .venv-peers/.ready
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE .venv-peers/bin/python -m benches.peers --json build/peers.json

# The asv suite: all of it for HEAD, or for the last commits that changed code, with pages.
asv: $(READY)
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(RUN) -m benches.dashboard --head-only $(ARGS)

dashboard: $(READY)
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(RUN) -m benches.dashboard $(ARGS)

# Is HEAD, or HEAD=<rev>, slower than BASE=<rev>? make ends with 2 where the gate ends with 1 or 2.
regress: $(READY)
	$(RUN) -m benches.regression $(if $(BASE),--base $(BASE)) $(if $(HEAD),--head $(HEAD)) $(if $(CASES),--cases "$(CASES)") $(ARGS)

# One page of what bench, peers and asv have left in build/ and .asv/.
report: $(READY)
	$(RUN) -m benches.page

test-peers: .venv-peers/.ready
	.venv-peers/bin/python -m pytest tests/peers

.venv-peers/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[bench,test]' torch==2.13.0 gensim
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --no-deps fbgemm-gpu-cpu==1.8.0
	@touch $@

# Kernels for CUDA run in an emulator of one thread: those tests take what the others, who mostly compile, leave of the CPU.
# Tests marked gpu run on a machine that has one: python benches/device.py.
test: $(READY)
	@$(MAKE) --no-print-directory --jobs=2 test-cpu test-cuda test-benches test-beside
	@$(MAKE) --no-print-directory test-sorix

test-cpu: $(READY)
	$(RUN) -m pytest --benchmark-disable -m "not browser" $(addprefix --ignore ,$(CUDA) $(BENCHES) $(BESIDE))

test-cuda: $(READY)
	nice -n 19 $(RUN) -m pytest -q --benchmark-disable -m "not gpu" $(CUDA)

test-benches: $(READY)
	$(RUN) -m pytest -q --benchmark-disable -m "not gate" $(BENCHES)

# Other frameworks, other processes, files.
test-beside: $(READY)
	nice -n 19 $(RUN) -m pytest -q --benchmark-disable $(BESIDE)

# sorix needs Python 3.12, so its tests have an environment of their own, with the first such interpreter that runs.
# (A shim of pyenv's runs only if it is told its version.)
SORIX_PYTHON ?= $(shell for minor in 12 13 14; do \
	PYENV_VERSION=3.$$minor python3.$$minor -c 'import sys; print(sys.executable)' 2>/dev/null && break; done)

test-sorix:
ifeq ($(SORIX_PYTHON),)
	@echo "tests/interop/test_sorix.py was NOT run: sorix needs Python 3.12, and none of python3.12 to python3.14 is there"
else
	@$(MAKE) --no-print-directory .venv-sorix/.ready
	.venv-sorix/bin/python -m pytest -q tests/interop/test_sorix.py
endif

.venv-sorix/.ready: pyproject.toml
	$(SORIX_PYTHON) -m venv .venv-sorix
	.venv-sorix/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test,sorix]'
	@touch $@

# Chromium and npm have to be there.
test-browser: $(VENV)/.browser
	$(RUN) -m pytest -m browser tests/browser

$(VENV)/.browser: $(READY)
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[browser]'
	@touch $@

# Five minutes.
test-gate: $(READY)
	$(RUN) -m pytest -m gate tests/benches

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -m pytest -q tests/test_docstrings.py

clean:
	rm -rf $(VENV) .venv-peers .venv-sorix build dist .asv .benchmarks *.egg-info .pytest_cache .mypy_cache .ruff_cache
