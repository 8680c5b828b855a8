#!/usr/bin/env bash
# fuzz.sh BUILD SECONDS: run every fuzz target of BUILD for SECONDS each.
# Seeds are read from tests/fuzz/corpus/<target>/ (or tests/fuzz/corpus/ itself); new inputs and
# crashes are written below BUILD, never into the tree.
set -euo pipefail
build=$1
seconds=$2
seeds=tests/fuzz/corpus

status=0
for target in "$build"/fuzz_*; do
    [[ -f $target && -x $target ]] || continue
    name=$(basename "$target")
    finds=$build/finds/$name
    mkdir -p "$finds"
    dirs=("$finds")
    if [[ -d $seeds/$name ]]; then
        dirs+=("$seeds/$name")
    elif [[ -d $seeds ]]; then
        dirs+=("$seeds")
    fi
    echo "== $name, ${seconds}s"
    log=$build/$name.log
    if "$target" -max_total_time="$seconds" -timeout=10 -artifact_prefix="$build/$name-" \
        "${dirs[@]}" >"$log" 2>&1; then
        tail -n 1 "$log"
    else
        tail -n 60 "$log"
        echo "FAILED: $name; the input is in $build/$name-*, the log in $log" >&2
        status=1
    fi
done
exit $status
