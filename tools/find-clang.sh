#!/usr/bin/env bash
# find-clang.sh [--fuzzer]: print the newest clang++ on this machine, installing one if there is
# none; with --fuzzer, one that can link libFuzzer. CLANGXX=... overrides the search.
set -euo pipefail
here=$(dirname "$0")

if [[ -n ${CLANGXX:-} ]]; then
    echo "$CLANGXX"
    exit
fi

version() { "$1" -dumpversion 2>/dev/null | cut -d. -f1; }

newest_clang() {
    local name
    for name in $(compgen -c clang++ | sort -u); do
        if [[ $name =~ ^clang\+\+(-[0-9]+)?$ ]]; then
            echo "$(version "$name") $name"
        fi
    done | sort -n | tail -n 1 | cut -d' ' -f2
}

# clang packages on offer, newest first. The unversioned one can be too old for C++20.
packages() {
    apt-cache search --names-only '^clang-[0-9]+$' 2>/dev/null | cut -d' ' -f1 | sort -t- -k2 -rn || true
}

links_fuzzer() {
    local out
    out=$(mktemp)
    trap 'rm -f "$out"' RETURN
    echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
        "$1" -x c++ -fsanitize=fuzzer,address,undefined -o "$out" - 2>/dev/null
}

clang=$(newest_clang)
if [[ -z $clang && $(id -u) -eq 0 ]]; then
    if [[ -z $(packages) ]]; then
        apt-get update -qq >/dev/null 2>&1 || true
    fi
    for package in $(packages | head -n 3) clang; do
        "$here/apt-install.sh" "$package" && break
    done
    clang=$(newest_clang)
fi
if [[ -z $clang ]]; then
    echo "error: clang++ was not found; install clang 16 or newer, or set CLANGXX" >&2
    exit 1
fi

if [[ ${1:-} == --fuzzer ]] && ! links_fuzzer "$clang"; then
    "$here/apt-install.sh" "libclang-rt-$(version "$clang")-dev"
fi
echo "$clang"
