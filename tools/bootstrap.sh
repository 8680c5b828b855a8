#!/usr/bin/env bash
# bootstrap.sh: make .venv with the build tools (CMake, Ninja, scikit-build-core, nanobind).
# The system has to provide Python >= 3.11 with headers and a C++20 g++; on Debian and Ubuntu,
# as root, what is missing is installed. PYTHON=... chooses the interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."

is_usable() {
    command -v "$1" >/dev/null && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))'
}

find_python() {
    local name
    for name in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}; do
        if is_usable "$name"; then
            echo "$name"
            return
        fi
    done
    return 1
}

# The header's own location is asked for: pyenv, conda and Debian each have another.
has_headers() {
    "$1" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}

make_venv() { "$1" -m venv --clear .venv >/dev/null 2>&1 && .venv/bin/python -m pip --version >/dev/null 2>&1; }

if ! command -v "${GXX:-g++}" >/dev/null; then
    tools/apt-install.sh g++
fi

if ! python=$(find_python); then
    if [[ -n ${PYTHON:-} ]]; then
        echo "error: PYTHON=$PYTHON is missing or older than Python 3.11" >&2
        exit 1
    fi
    tools/apt-install.sh python3 python3-venv python3-dev
    # Some releases ship an older python3 beside a newer versioned one.
    find_python >/dev/null || tools/apt-install.sh python3.11 python3.11-venv python3.11-dev
    python=$(find_python) || { echo "error: Python 3.11 or newer was not found" >&2; exit 1; }
fi

# Debian names its packages after the version, so python3.12 needs python3.12-venv.
package="python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
has_headers "$python" || tools/apt-install.sh "$package-dev"
if ! make_venv "$python"; then
    tools/apt-install.sh "$package-venv"
    make_venv "$python" || { echo "error: '$python -m venv .venv' fails" >&2; exit 1; }
fi

# What pyproject.toml asks of a build, so that the package can be installed without isolation.
mapfile -t requires < <(.venv/bin/python -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")')
.venv/bin/python -m pip install --quiet --disable-pip-version-check "${requires[@]}" 'cmake>=3.25' ninja
