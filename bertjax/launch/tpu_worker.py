"""What a worker of a TPU gets from `tpu_vm`: the checkout, and the scripts that it runs there."""

import pathlib
import shlex
import subprocess
import tarfile
from collections.abc import Sequence

from bertjax.errors import UserError

ROOT = pathlib.Path(__file__).resolve().parents[2]

# In ~/bertjax of a worker. The images bring Python 3.10, for which there is no jax of today.
SETUP = """
set -e
mkdir -p bertjax && cd bertjax && tar -xzf ../bertjax.tar.gz
if [ ! -x .venv/bin/python ]; then
  for python in python3.12 python3.11 python3; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
      "$python" -m venv .venv
      break
    fi
  done
fi
if [ ! -x .venv/bin/python ]; then
  python3 -m pip install -q --user uv && python3 -m uv venv -q --seed --python 3.12 .venv
fi
.venv/bin/python -m pip install -q -r requirements-train.txt -r requirements-storage.txt 'jax[tpu]'
"""
START = """
set -e
cd bertjax
if [ -f run.pid ] && kill -TERM "$(cat run.pid)" 2> /dev/null; then
  for second in $(seq 300); do kill -0 "$(cat run.pid)" 2> /dev/null || break; sleep 1; done
  kill -KILL -- -"$(cat run.pid)" 2> /dev/null || true
fi
rm -f run.status
nohup setsid sh run.sh > run.log 2>&1 < /dev/null & echo $! > run.pid
"""
# The process of run.pid passes a signal on to the run, and leads the group that both are of.
RUN = """cd "$HOME/bertjax"
.venv/bin/python -m bertjax.launch resumable {flags} & run=$!
trap 'kill -TERM $run' TERM
wait $run; status=$?
while kill -0 $run 2> /dev/null; do wait $run; status=$?; done
echo $status > run.status.part && mv run.status.part run.status
"""


def run_script(flags: Sequence[str]) -> str:
  """run.sh: the flags are quoted once, here, and no other shell sees them."""
  return RUN.format(flags=shlex.join(flags))


def pack(archive: pathlib.Path, run: str, root: pathlib.Path = ROOT) -> None:
  """Packs the checkout, with changes and new files that are not committed, and run.sh.

  Raises:
    UserError: the package is not in a checkout.
  """
  listed = subprocess.run(
    ['git', '-C', str(root), 'ls-files', '-z', '--cached', '--others', '--exclude-standard'],
    capture_output=True, text=True, check=False,
  )  # fmt: skip
  if listed.returncode:
    raise UserError(f'expected a git checkout of bertjax in {root}: {listed.stderr.strip()}')
  script = archive.with_name('run.sh')
  script.write_text(run, encoding='utf-8')
  with tarfile.open(archive, 'w:gz') as tar:
    for name in sorted(set(listed.stdout.split('\0')) - {''}):
      if (root / name).is_file():  # one that was deleted is still listed
        tar.add(root / name, name)
    tar.add(script, 'run.sh')
