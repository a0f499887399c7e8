#!/bin/bash
# All GPUs of this machine, or of the machines of --hosts=A,B,... through ssh, one process each:
#
#   launch/gpu.sh [--hosts=A,B,...] [--port=8482] [--dry-run] --config=... --workdir=...
#
# Each host is reached by ssh, without a password, and has this checkout, this environment, the
# workdir and the store under the same paths. A is the coordinator. Where one of them fails or this
# script is stopped, the others get SIGHUP, on which the run saves and ends.
set -euo pipefail
here=$(CDPATH='' cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
run=("${PYTHON:-$(command -v python || command -v python3)}" -m bertjax.main)
go() { exec "$@"; }
quoted() { for word in "$@"; do printf " '%s'" "${word//\'/\'\\\'\'}"; done; }  # for any shell
hosts=() port=8482 pids=()
for word in "$@"; do
  case "$word" in
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit ;;
    --hosts=*)
      case ",${word#*=}," in
        *,,* | *,-* | *@-* | *[[:space:]]*) echo "expected --hosts=A,B, got: $word" >&2; exit 1 ;;
      esac
      IFS=, read -ra hosts <<< "${word#*=}" ;;
    --port=*)
      port=${word#*=}
      [[ $port =~ ^[1-9][0-9]{0,4}$ && $port -lt 65536 ]] ||
        { echo "expected --port=1 to 65535, got: $word" >&2; exit 1; } ;;
    --dry-run) go() { printf '%q ' "$@" && echo; } ;;
    *) run+=("$word") ;;
  esac
done
case "$*" in *--workdir*) ;; *) echo "expected --workdir=..., got: $*" >&2 && exit 1 ;; esac
case "$*" in *--config.preset*) ;; *) run+=(--config.preset=gpu) ;; esac
[ ${#hosts[@]} -gt 0 ] || { go "${run[@]}" && exit; }

trap 'kill "${pids[@]}" 2> /dev/null || :' EXIT
for i in "${!hosts[@]}"; do
  place=(--coordinator="${hosts[0]##*@}:$port" --processes=${#hosts[@]} --process="$i")
  remote="cd$(quoted "$PWD") && exec env$(quoted "PYTHONPATH=$PYTHONPATH" "${run[@]}" "${place[@]}")"
  # -tt: with a terminal of its own the run is hung up when the connection ends.
  go ssh -tt -o BatchMode=yes -o ServerAliveInterval=30 "${hosts[i]}" "$remote" < /dev/null &
  pids+=($!)
done
for _ in "${pids[@]}"; do wait -n; done
