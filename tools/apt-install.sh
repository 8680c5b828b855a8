#!/usr/bin/env bash
# apt-install.sh PACKAGE... : install Debian/Ubuntu packages when we may, else say what is missing.
set -euo pipefail

if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
    echo "error: please install these packages (Debian/Ubuntu names), then try again: $*" >&2
    exit 1
fi

export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }

echo "installing with apt-get: $*" >&2
# A fresh container has no package lists, so a first failure is worth one update.
install "$@" 2>/dev/null && exit 0
apt-get update -qq >/dev/null 2>&1 || true
if ! install "$@"; then
    echo "error: apt-get could not install: $*" >&2
    exit 1
fi
