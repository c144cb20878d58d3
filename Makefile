# `make help` lists the targets. Each of them makes .venv first, with the versions pinned in constraints.txt.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
BIN := .venv/bin
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help venv demo test property pipelines experts check lint types layers format clean
.DEFAULT_GOAL := help

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: .venv/stamp  ## a virtual environment with everything pinned

.venv/stamp: constraints.txt pyproject.toml tools/venv
	@PYTHON="$(PYTHON)" tools/venv

demo: .venv/stamp  ## compile, train, verify and draw a small GPT, then in stages: under three minutes
	@$(BIN)/graphpar demo

test: check  ## all checks, then all tests
	@$(BIN)/pytest -q -n 2 --dist loadgroup

property: .venv/stamp  ## 2000 models and layouts that nobody chose; GRAPHPAR_DRAWS and GRAPHPAR_SEED change them
	@GRAPHPAR_DRAWS=$${GRAPHPAR_DRAWS:-2000} $(BIN)/pytest -q -s --show-capture=no tests/property

pipelines: .venv/stamp  ## every zoo model in stages, under every schedule and mesh: about two hours
	@GRAPHPAR_PIPELINES=all $(BIN)/pytest -q -n 2 --dist loadgroup tests/test_pipelines.py

experts: .venv/stamp  ## every mixture of experts under every layout with `moe`: several minutes
	@GRAPHPAR_EXPERTS=all $(BIN)/pytest -q -n 2 --dist loadgroup tests/test_mixtures.py

check: lint types layers  ## style, types and who imports whom

lint: .venv/stamp  ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: .venv/stamp  ## pyright, strict
	@$(BIN)/pyright --pythonpath $(BIN)/python

layers: .venv/stamp  ## import contracts
	@$(BIN)/lint-imports

format: .venv/stamp  ## rewrite the sources as ruff wants them
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean:  ## remove what make and the tools made
	@rm -rf .venv build dist graphpar-demo *.egg-info .pytest_cache .hypothesis .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
