#!/usr/bin/env bash
# Sets up all that is needed and solves NIST's reference data by plain torch.linalg.lstsq.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh
python -m torch_lstsq_ext demo
