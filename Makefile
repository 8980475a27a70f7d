.PHONY: test slow lint types notebooks site tables wheel bench faults

test:
	pytest -n 2

slow:
	pytest -m slow
	pytest --hypothesis-profile=thorough

lint:
	ruff check .
	ruff format --check .
	$(MAKE) --no-print-directory types
	pytest -m slow -k "not walk" tests/repository/test_layers.py tests/repository/test_prose.py \
		tests/repository/test_exports.py::test_names_in_messages_and_docstrings_exist \
		tests/repository/test_dependencies.py::test_what_is_imported_is_declared_and_nothing_else \
		tests/repository/test_dependencies.py::test_optional_packages_are_imported_in_functions

types:
	mypy -p longcrawl

notebooks:
	pytest -m "slow or not slow" tests/repository/test_notebooks.py

# build/site, with README, notebooks and the reference; needs pip install -e ".[docs]".
site:
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict

# Tables of all code points, for the Unicode version of each of these Pythons, and of tiktoken's patterns: make tables PYTHONS="py311/bin/python py312/bin/python".
tables:
	for python in $(PYTHONS); do LONGCRAWL_TABLES=write $$python -m pytest -m slow tests/kernels/test_code_points.py -k what_this_python_builds || exit 1; done
	LONGCRAWL_TABLES=write $(firstword $(PYTHONS)) -m pytest tests/tokens/test_bpe.py -k classes_are_those_of_tiktoken
	for python in $(PYTHONS); do LONGCRAWL_TABLES=write $$python -m pytest tests/tokens/test_encoders_prepared.py -k classes_are_those_of_unicode || exit 1; done

PYTHONS = python
wheel:
	python -m build

# Each script prints one ratio as its last line, where there is what it needs. CONTRIBUTING.md says how to run them on real input.
bench:
	@for script in benchmarks/[!_]*.py benchmarks/faults/[!_]*.py; do echo "== $$script"; python $$script || exit 1; done

# About three quarters of an hour on two processors. A failure prints the command that repeats it.
faults:
	python benchmarks/faults/fuzz.py --n 300000
	python benchmarks/faults/flips.py --n 20000
	python benchmarks/faults/kills.py --n 560
	python benchmarks/faults/storage.py --n 150
	python benchmarks/faults/hub.py --n 200
