# One target does one thing and ends in one summary line. Each sets up .venv by itself where that is needed.
# make itself exits 2 whenever a command failed; the command's own status (0 to 3) is in the line that make adds.

SCOPE ?= small
ARGS ?=
python := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup check test lint bench prove docs example

help: ## list the targets
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1	\2/p' Makefile | expand -t 18

setup: ## make or update .venv, and nothing else
	@sh .ci/setup

check: setup ## spec and variants, interleavings, quick proofs (SCOPE=small|medium|large)
	@$(python) -m cleancut check --scope '$(SCOPE)'

# Two processes on two processors, and no more than four: each brings its own Ray where a test needs one.
test: setup ## run the tests (ARGS='-k barrier' is handed to pytest, -n 0: in one process)
	@$(python) -m pytest -q -n auto --maxprocesses 4 --dist worksteal $(ARGS)

lint: setup ## ruff check, ruff format --check, mypy --strict
	@status=0; \
	for tool in 'ruff check --quiet .' 'ruff format --check --quiet .' 'mypy --no-error-summary'; do \
	    $(python) -m $$tool || { echo "lint: $$tool failed" >&2; status=1; }; \
	done; \
	[ $$status -eq 0 ] && echo 'lint: clean (ruff check, ruff format, mypy --strict)' || exit 1

bench: setup ## run every script of bench/ (ARGS=--quick is handed to each)
	@set -- bench/*.py; \
	[ -e "$$1" ] || { echo 'bench: not built yet: bench/ has no script' >&2; exit 2; }; \
	failed=0; missing=0; \
	for script; do \
	    $(python) "$$script" $(ARGS); \
	    case $$? in \
	    0) ;; \
	    3) echo "bench: $$script not run" >&2; missing=$$((missing + 1)) ;; \
	    *) echo "bench: $$script failed" >&2; failed=$$((failed + 1)) ;; \
	    esac; \
	done; \
	echo "bench: $$(($$# - missing)) run, $$failed failed, $$missing not run"; \
	[ $$failed -eq 0 ]

prove: setup ## discharge every proof obligation
	@$(python) -m proofs

docs: setup ## build the site into build/site, warnings as errors, without the network
	@NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build

example: setup ## a real run: trains, is killed three times, resumes; figures and account in build/example
	@rm -rf build/example
	@$(python) -m examples.grpo --directory build/example $(ARGS)
