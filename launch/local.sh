#!/bin/sh
# N processes on this machine as one run, each with M simulated devices:
#
#   launch/local.sh N[xM] [--dry-run] --config=... --workdir=...
#
# What it does is in bertjax/launch/local.py.
set -eu
here=$(CDPATH='' cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH
exec "${PYTHON:-$(command -v python || echo python3)}" -m bertjax.launch local "$@"
