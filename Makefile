# Two commands, each sufficient on a machine with Python 3.11+ and make:
#   make demo    create .venv, install, run the text study and two synthetic tasks, print verdicts and reports' paths
#   make test    create .venv, install, then lint, types and tests
# The torch version is pinned here and nowhere else; override it: make test TORCH=2.11.0

PYTHON ?= python3
TORCH  ?= 2.13.0
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed-torch-$(TORCH)

.PHONY: demo test lint types install clean

demo: install
	$(BIN)/paribus run experiments/demo.toml
	$(BIN)/paribus run experiments/demo-twin.toml
	$(BIN)/paribus run experiments/demo-cross.toml

test: install lint types
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/pyright

install: $(STAMP)

$(STAMP): pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "paribus needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; name another one: make PYTHON=python3.12 ...")'
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (torch $(TORCH))"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "torch==$(TORCH)" -e ".[test]"
	@rm -f $(VENV)/.installed-torch-*
	@touch $(STAMP)

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
