#!/usr/bin/env bash
# Sets up all that is needed and runs every check, on the best device present. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh
for module in pytest:pytest xdist:pytest-xdist expecttest:expecttest; do
  has "${module%%:*}" || pip_install "${module##*:}"
done

if command -v ruff >/dev/null && command -v clang-format >/dev/null || pip_install ruff==0.17.6 clang-format==23.1.5; then
  ruff check .
  ruff format --check .
  clang-format --dry-run --Werror csrc/*.cpp csrc/*.h
else
  echo "lint: skipped, ruff and clang-format are neither here nor to be had"
fi

cores=$(nproc)
workers=$((cores < 16 ? cores : 16))
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores / workers))} # the references' LAPACK, in every worker
python -m pytest -n "$workers" "$@"
