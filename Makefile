# Every target sets up what it needs; start with `make help`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN    := .venv/bin
PY     := $(BIN)/python
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
GXX    ?= g++
CLANGXX ?= # when empty, tools/find-clang.sh finds or installs one
FUZZ_SECONDS ?= 60

TOOLS     := .venv/.tools
INSTALLED := .venv/.installed
# Some tests share memory with torch. The local version names the CPU build: a plain torch may be
# gigabytes of CUDA. An index that lacks it costs those tests, which pytest then lists as skipped.
TORCH     := torch==2.13.0+cpu
# The interpreter of this version is what the tests of the cuda target run in.
TRITON    := triton==3.6.0
TORCH_ASKED := .venv/.torch
CORE      := $(shell find core -type f -not -name '.*' 2>/dev/null)
CXX_FILES  = $(shell find core tests examples benchmarks -type f \( -name '*.cpp' -o -name '*.h' \
               -o -name '*.c' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null)

# $(call cmake,DIR,COMPILER,OPTIONS): configure build/DIR and build it.
cmake = cxx=$(2) && $(BIN)/cmake -S . -B build/$(1) -G Ninja -DCMAKE_CXX_COMPILER=$$cxx $(3) \
  -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja --log-level=WARNING >/dev/null && \
  echo "build/$(1) ($$cxx)" && $(BIN)/cmake --build build/$(1) -j $(JOBS)
ctest = $(BIN)/ctest --test-dir build/$(1) --output-on-failure --no-tests=error -j $(JOBS)
clang = $$(CLANGXX='$(CLANGXX)' tools/find-clang.sh $(1))

.PHONY: help setup demo test test-cpp test-py test-triton soak lint lint-py lint-cpp format tsan asan fuzz \
        bench bench-check golden wheel docs clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(TOOLS): tools/bootstrap.sh
	tools/bootstrap.sh
	@touch $@

# Python sources are not listed: the install is editable, so editing them rebuilds nothing.
$(INSTALLED): $(TOOLS) pyproject.toml CMakeLists.txt $(CORE)
	$(BIN)/pip install --quiet --no-build-isolation --editable '.[dev]'
	@touch $@

$(TORCH_ASKED): $(INSTALLED)
	@$(BIN)/pip install --quiet --retries 1 --no-compile '$(TORCH)' || \
	  echo "note: $(TORCH) is not to be had; the tests that need torch are skipped"
	@$(BIN)/pip install --quiet --retries 1 --no-compile '$(TRITON)' || \
	  echo "note: $(TRITON) is not to be had; the tests of the cuda target are skipped"
	@touch $@

setup: $(INSTALLED)  ## make .venv, install the package into it, find both compilers
	@$(PY) --version && $(GXX) --version | head -n 1 && cxx=$(call clang) && $$cxx --version | head -n 1

demo: $(INSTALLED)  ## one decode step of paged attention: run, checked, timeline written
	$(PY) examples/07_paged_decode/main.py

test: test-cpp test-py  ## run the C++ tests, then the Python tests (no hardware needed)
test-cpp: $(TOOLS)  ## build and run the C++ tests
	@$(call cmake,test,$(GXX),-DPTOWSP_TESTS=ON -DPTOWSP_WERROR=$(if $(CI),ON,OFF))
	$(call ctest,test)
test-py: $(INSTALLED) $(TORCH_ASKED)  ## run the Python tests, without the soak tests
	@$(mutants)
	$(PY) tools/run_tests.py
test-triton: $(INSTALLED) $(TORCH_ASKED)  ## the Triton form of kernels: all of it interpreted, then compiled for a GPU
	$(PY) -m pytest tests/kernels/triton
	PTO_WSP_TEST_GPU=compile $(PY) -m pytest tests/kernels/triton tests/backends/cuda/test_compiled.py
soak: $(INSTALLED)  ## run the long property tests
	HYPOTHESIS_PROFILE=soak $(PY) -m pytest -m soak

lint: lint-py lint-cpp  ## run every static check

lint-py: $(INSTALLED)  ## ruff, pyright, import rules, repository rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	PYTHONPATH=python $(BIN)/lint-imports --no-logo --cache-dir build/import-linter
	$(PY) tests/lint/run.py

lint-cpp: $(INSTALLED)  ## clang-format, and a -Werror compile with gcc and with clang
	@$(if $(CXX_FILES),$(BIN)/clang-format --dry-run --Werror $(CXX_FILES))
	@$(mutants)
	@$(call cmake,lint-clang,$(call clang),$(LINT) -DPTOWSP_COMPILE_ONLY=ON -DPTOWSP_TESTS=ON \
	  -DCMAKE_CXX_FLAGS=-O0)
# gcc compiles the tests with -Werror in CI's `make test`; some of its warnings need the optimiser.
LINT = -DPTOWSP_WERROR=ON -DPTOWSP_PYTHON=ON -DPython_EXECUTABLE=$(CURDIR)/$(PY) \
       -DCMAKE_BUILD_TYPE=None
# A core whose directives can be switched off: tests/conformance/test_mutants.py loads it.
# Lint and tests may want them at the same time.
mutants = mkdir -p build && ( if command -v flock >/dev/null; then flock 9; fi; \
  $(call cmake,mutants,$(GXX),$(LINT) -DPTOWSP_MUTANTS=ON -DCMAKE_CXX_FLAGS=-O1) ) 9>build/.mutants

format: $(INSTALLED)  ## rewrite Python and C++ files in the project's format
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format
	$(if $(CXX_FILES),$(BIN)/clang-format -i $(CXX_FILES))

# Some kernels randomise addresses more than ThreadSanitizer accepts; setarch -R turns that off.
tsan: $(TOOLS)  ## run the C++ tests under ThreadSanitizer
	@$(call cmake,tsan,$(GXX),-DPTOWSP_TESTS=ON -DPTOWSP_SANITIZE=thread)
	$(shell setarch -R true 2>/dev/null && echo setarch -R) $(call ctest,tsan)
asan: $(TOOLS)  ## run the C++ tests under AddressSanitizer and UBSan
	@$(call cmake,asan,$(GXX),-DPTOWSP_TESTS=ON -DPTOWSP_SANITIZE=address)
	$(call ctest,asan)

fuzz: $(TOOLS)  ## fuzz each target in tests/fuzz for FUZZ_SECONDS (60)
	@$(call cmake,fuzz,$(call clang,--fuzzer),-DPTOWSP_FUZZ=ON)
	tools/fuzz.sh build/fuzz $(FUZZ_SECONDS)

bench: $(INSTALLED) $(TORCH_ASKED)  ## run the benchmarks
	$(PY) -m benchmarks.run
bench-check: $(INSTALLED) $(TORCH_ASKED)  ## compare a benchmark run with benchmarks/bars.toml
	$(PY) -m benchmarks.check
golden: $(INSTALLED)  ## rewrite the golden files from the current output
	$(PY) -m pytest --update-golden
# The wheel is made from the source distribution, so whatever that lacks is missed here.
wheel: $(TOOLS)  ## build the source distribution, and from it the wheel, into dist/
	rm -rf dist
	@$(PY) -c 'from scikit_build_core.build import build_sdist; build_sdist("dist")' >/dev/null
	@PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/pip wheel --quiet --no-build-isolation --no-deps -w dist dist/*.tar.gz
	@ls -l dist
docs: $(INSTALLED)  ## regenerate the generated pages
	$(PY) tools/gen_docs.py

clean:  ## remove build outputs (keeps .venv)
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
