#!/bin/sh
# Several processes on this machine, as one run: launch/local.sh N --config=... --workdir=...
#
# On CPUs the processes talk through gloo. The output of process 0 is shown, that of the others
# goes to WORKDIR.process-I.log; if one fails, all are stopped.
set -eu
[ $# -ge 2 ] || { sed -n '2,5p' "$0"; exit 2; }
count=$1; shift
workdir=run
for flag in "$@"; do case $flag in --workdir=*) workdir=${flag#--workdir=} ;; esac; done
port=$(python -c 'import socket; s = socket.socket(); s.bind(("localhost", 0)); print(s.getsockname()[1])')
mkdir -p "$(dirname "$workdir")"
export JAX_CPU_COLLECTIVES_IMPLEMENTATION=gloo

start() {
  python -m bertjax.main "$@" --coordinator="localhost:$port" --processes="$count" --process="$i"
}
others=
i=1
while [ "$i" -lt "$count" ]; do
  start "$@" > "$workdir.process-$i.log" 2>&1 &
  others="$others $!"
  i=$((i + 1))
done
i=0
start "$@" &
first=$!
trap 'kill $first $others 2> /dev/null || true' EXIT INT TERM
wait "$first"
for pid in $others; do wait "$pid"; done
