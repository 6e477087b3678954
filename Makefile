# The front of the project. `make demo` and `make test` install what is missing, build, and go.
JOBS ?= $(shell nproc)
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= 1

.PHONY: help demo test build bench format lint clean setup setup-check sanitize install

help:
	@echo 'make demo      set up, build, and take FlashAttention through all stages'
	@echo 'make test      set up, build, and run all tests'
	@echo 'make build     set up and build: the program is build/pipethreader'
	@echo 'make bench     time the kernels of the library against their peers (needs a Hopper GPU)'
	@echo 'make format    format all C++ sources in place'
	@echo 'make lint      formatting, include directions, operator names, clang-tidy'
	@echo 'make sanitize  tests under the address and undefined-behaviour sanitizers'
	@echo 'make install   install to PREFIX (default /usr/local)'
	@echo 'make clean     remove all build folders and outputs'

setup:
	@scripts/bootstrap.sh build

build: setup
	@mkdir -p build
	@cmake --preset release > build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@cmake --build build -j $(JOBS)

demo: build
	@scripts/bootstrap.sh nvrtc
	@scripts/demo.sh

test: build
	@scripts/bootstrap.sh nvrtc
	@ctest --preset release -j $(JOBS)

bench: build
	@scripts/bootstrap.sh nvrtc
	@scripts/bench.sh

setup-check:
	@scripts/bootstrap.sh build check

format: setup-check
	@scripts/format.sh

lint: setup-check build
	@scripts/format.sh --check
	@scripts/check_includes.py
	@scripts/check_operators.sh
	@scripts/tidy.py

sanitize: setup
	@cmake --preset sanitize
	@cmake --build --preset sanitize -j $(JOBS)
	@ctest --preset sanitize -j $(JOBS)

PREFIX ?= /usr/local
install: build
	@cmake --install build --prefix $(PREFIX)

clean:
	@rm -rf build build-debug build-sanitize out
