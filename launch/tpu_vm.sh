#!/bin/sh
# One command on every worker of a TPU VM or pod slice:
#
#   TPU=name ZONE=us-central2-b launch/tpu_vm.sh --config=configs/bert.py:base --workdir=gs://...
#
# Copies this checkout, installs the requirements of a worker (no TensorFlow) with jax for TPU, and
# starts the run in a tmux session, `tmux attach -t bertjax` on a worker. The same command after a
# preemption resumes. The store must be prepared and lie where every worker reads it.
set -eu
: "${TPU:?name of the TPU VM}" "${ZONE:?its zone}"
here=$(CDPATH='' cd "$(dirname "$0")/.." && pwd)
all="gcloud compute tpus tpu-vm"
archive=$(mktemp -d)/bertjax.tar.gz
git -C "$here" archive --format=tar.gz -o "$archive" HEAD
$all scp "$archive" "$TPU:" --zone="$ZONE" --worker=all
quoted=
for flag in "$@"; do quoted="$quoted '$flag'"; done
$all ssh "$TPU" --zone="$ZONE" --worker=all --command="
  set -e
  mkdir -p bertjax && tar -xzf bertjax.tar.gz -C bertjax && cd bertjax
  python3 -m venv .venv && . .venv/bin/activate
  pip install -q -r requirements-train.txt 'jax[tpu]'
  tmux kill-session -t bertjax 2> /dev/null || true
  tmux new-session -d -s bertjax \". .venv/bin/activate && python -m bertjax.main$quoted 2>&1 | tee run.log\"
"
