#!/bin/sh
# A run on GKE as a JobSet:
#
#   IMAGE=... TYPE=... TOPOLOGY=... launch/gke.sh [--dry-run] --config=... --workdir=gs://...
#
# What it does is in bertjax/launch/gke.py.
set -eu
here=$(CDPATH='' cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH
exec "${PYTHON:-$(command -v python || echo python3)}" -m bertjax.launch gke "$@"
