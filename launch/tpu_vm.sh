#!/bin/bash
# A run on all workers of a TPU VM or pod that is there:
#
#   TPU=name ZONE=zone launch/tpu_vm.sh [--dry-run] --config=... --workdir=gs://...
#
# Copies this checkout with what is not committed, installs what a worker needs, starts the run on
# every worker and shows the log of the first one until the run ends. Ctrl-C leaves the run alone;
# the same command stops it at a checkpoint, brings the checkout as it is now, and resumes. For spot
# machines, which are made anew when they are preempted, there is launch/sky.yaml.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1-}" = --dry-run ]; then
  shift
  gcloud() { printf '%q ' gcloud "$@" && echo; }
fi
: "${TPU:?expected TPU=, the name of a TPU VM}" "${ZONE:?expected ZONE=, its zone}"
case "$TPU:$ZONE" in
  -* | *:-* | *[!A-Za-z0-9@._:-]* | *:*:*) echo "expected names, got: $TPU, $ZONE" >&2; exit 1 ;;
esac
case "$*" in *--workdir*) ;; *) echo "expected --workdir=gs://..., got: $*" >&2 && exit 1 ;; esac
case "$*" in *--config.preset*) ;; *) set -- "$@" --config.preset=tpu ;; esac
archive=$(mktemp)
trap 'rm -f "$archive"' EXIT
git ls-files -z --cached --others --exclude-standard |
  tar -czf "$archive" --ignore-failed-read --null --files-from=- 2> /dev/null

# The images bring Python 3.10, for which there is no jax of today.
# shellcheck disable=SC2016  # what is in single quotes is for the shell of a worker
start="set -- $(printf '%q ' "$@")"'
set -e
mkdir -p bertjax && cd bertjax
if [ -f run.pid ] && kill -TERM -- "-$(cat run.pid)" 2> /dev/null; then
  timeout 300 tail --pid="$(cat run.pid)" -f /dev/null || kill -KILL -- "-$(cat run.pid)"
fi
rm -f run.pid run.status && : > run.log  # of which a follower may come first
tar -xzf ../bertjax.tar.gz
if [ ! -x .venv/bin/python ]; then
  python3 -m pip install -q --user uv && python3 -m uv venv -q --seed --python 3.12 .venv
fi
.venv/bin/python -m pip install -q -r requirements-train.txt -r requirements-storage.txt "jax[tpu]"
run="trap : TERM; .venv/bin/python -m bertjax.main \"\$@\"; echo \$? > run.status"
nohup setsid bash -c "$run" run "$@" > run.log 2>&1 < /dev/null & echo $! > run.pid
'
# shellcheck disable=SC2016
follow='cd bertjax && tail -n +1 --pid="$(cat run.pid)" -f run.log && exit "$(cat run.status)"'
on_workers() { gcloud compute tpus tpu-vm ssh "$TPU" --zone="$ZONE" --worker="$1" --command="$2"; }

gcloud compute tpus tpu-vm scp "$archive" "$TPU:bertjax.tar.gz" --zone="$ZONE" --worker=all
on_workers all "$start"
on_workers 0 "$follow"
