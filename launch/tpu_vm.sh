#!/bin/sh
# A run on all workers of a TPU VM, made if need be, followed and started again when preempted:
#
#   TPU=name ZONE=zone [TYPE=v5litepod-16] launch/tpu_vm.sh [--dry-run] [--detach] --config=... --workdir=gs://...
#
# What it does is in bertjax/launch/tpu_vm.py.
set -eu
here=$(CDPATH='' cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH
exec "${PYTHON:-$(command -v python || echo python3)}" -m bertjax.launch tpu_vm "$@"
