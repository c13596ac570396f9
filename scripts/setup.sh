# Sourced by quickstart.sh and test.sh: a Python with torch, triton and this package, built in place.
# A torch or triton that can be imported is used as it is and never replaced.
TORCH=${TORCH:-torch==2.13.0}
TRITON=${TRITON:-triton==3.9.0}

has() { python -c "import $1" >/dev/null 2>&1; }
pip_install() {
  # An environment may have no pip of its own.
  if has pip; then set -- python -m pip install "$@"; else set -- pip --python "$bin/python" install "$@"; fi
  "$@" --quiet --disable-pip-version-check
}

command -v python3 >/dev/null || { echo "python3 (3.9 or later) is needed" >&2; exit 1; }
if python3 -c 'import sys, torch; sys.exit(sys.prefix == sys.base_prefix)' >/dev/null 2>&1; then
  # A virtual environment that has torch: stay in it.
  bin=$(python3 -c 'import sys; print(sys.prefix)')/bin
else
  if [ ! -x .venv/bin/python ]; then
    if python3 -c 'import torch' >/dev/null 2>&1; then
      python3 -m venv --system-site-packages .venv
    else
      python3 -m venv .venv
    fi
  fi
  bin=$PWD/.venv/bin
fi
export PATH=$bin:$PATH

for module in setuptools wheel ninja numpy; do has "$module" || pip_install "$module"; done
has torch || pip_install "$TORCH"
has triton || pip_install --no-deps "$TRITON"
pip_install --no-build-isolation --no-deps --editable .
