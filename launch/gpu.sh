#!/bin/sh
# All GPUs of this machine, or of the machines of --hosts=A,B,... through ssh:
#
#   launch/gpu.sh [--hosts=A,B] [--dry-run] --config=... --workdir=...
#
# What it does is in bertjax/launch/gpu.py.
set -eu
here=$(CDPATH='' cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH
exec "${PYTHON:-$(command -v python || echo python3)}" -m bertjax.launch gpu "$@"
