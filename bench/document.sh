#!/usr/bin/env bash
# Measures everything and writes docs/benchmarks.md, or the file that is named. PYTHON has torch,
# bitsandbytes, torchao and numpy, or some of them; where it is unset nothing is measured beside
# ours.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

go build -o "$work/lowbit" ./cmd/lowbit
"$work/lowbit" bench --json >"$work/lowbit.json"
steps() {
	echo "go test $1 -run '^\$' -bench '$2'"
	go test "$1" -run '^$' -bench "$2"
} >>"$work/steps.txt"
steps ./optim 'Many|One|Muon'
steps ./kernels Threads
steps ./bench Blocks
OPENBLAS_CORETYPE=SkylakeX steps ./bench '/op=(norm|dot|scale|gemm_float32)/'
peers=()
if [ -n "${PYTHON:-}" ]; then
	for threads in $(printf "1\n%s\n" "$(nproc)" | sort -nu); do
		"$PYTHON" bench/peers.py --threads "$threads" --filter '^((?!openblas).)*$' >"$work/peers$threads.json"
		peers+=("$work/peers$threads.json")
		for core in SkylakeX Haswell; do
			OPENBLAS_CORETYPE=$core "$PYTHON" bench/peers.py --threads "$threads" --filter openblas >"$work/$core$threads.json"
			peers+=("$work/$core$threads.json")
		done
	done
fi
go run ./internal/benchdoc -steps "$work/steps.txt" "$work/lowbit.json" "${peers[@]}" >"$work/benchmarks.md"
mv "$work/benchmarks.md" "${1:-docs/benchmarks.md}"
