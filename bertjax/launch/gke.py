"""A run on GKE as a JobSet, which starts it again when a node is preempted:

  IMAGE=... TYPE=tpu-v5-lite-podslice TOPOLOGY=4x4 launch/gke.sh [--dry-run] --config=... --workdir=gs://...

Environment:
  IMAGE     a container image with this package and its requirements, with jax for the device
  TYPE      accelerator of the node pool: tpu-v5-lite-podslice, tpu-v6e-slice, nvidia-h100-80gb, ..
  TOPOLOGY  of a TPU slice, e.g. 4x4; for GPUs: the number of nodes
  CHIPS     TPU chips or GPUs of one node (4; 8 for GPUs)
  SLICES    TPU slices (1)
  NAME      of the JobSet (bertjax)

The manifests are launch/gke.yaml and launch/gke_gpu.yaml. --dry-run prints what would be applied.
"""  # noqa: E501

import json
import math
import os
import pathlib
import re
import string
import subprocess
import sys
from collections.abc import Mapping

from bertjax.errors import UserError
from bertjax.launch import arguments

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'launch'


def main(argv: list[str]) -> int:
  """Applies the manifest with kubectl; returns its status."""
  if arguments.wants_help(argv, __doc__):
    return 0 if argv else 2
  dry_run, flags = arguments.own(argv, 'dry-run')
  manifest = manifest_of(flags, os.environ)
  if dry_run:
    print(manifest)
    return 0
  status = subprocess.run(
    ['kubectl', 'apply', '-f', '-'], input=manifest, text=True, check=False
  ).returncode
  if status == 0:
    name = os.environ.get('NAME', 'bertjax')
    print(
      f'kubectl get jobset {name}\n'
      f'kubectl logs --follow --prefix --selector=jobset.sigs.k8s.io/jobset-name={name}\n'
      f'kubectl delete jobset {name}',
    )
  return status


def manifest_of(flags: list[str], environ: Mapping[str, str]) -> str:
  """The manifest, as text.

  Args:
    flags: of `bertjax.main`, any text in them.
    environ: see above.

  Raises:
    UserError: a value is missing or cannot be.
  """
  workdir = arguments.required(flags, 'workdir')
  accelerator = _given(environ, 'TYPE', r'[a-z0-9-]+')
  gpus = accelerator.startswith('nvidia')
  chips = int(_given(environ, 'CHIPS', r'[1-9]\d*', '8' if gpus else '4'))
  topology = _given(environ, 'TOPOLOGY', r'[1-9]\d*' if gpus else r'\d+(x\d+)+')
  count = math.prod(map(int, topology.split('x')))
  if not gpus and count % chips:
    raise UserError(f'TOPOLOGY={topology} has {count} chips, which nodes of CHIPS={chips} do not')
  values = dict(
    NAME=_given(environ, 'NAME', r'[a-z]([a-z0-9-]*[a-z0-9])?', 'bertjax'),
    IMAGE=_given(environ, 'IMAGE', r'[\w./:@-]+'),
    TYPE=accelerator,
    TOPOLOGY=topology,
    CHIPS=str(chips),
    SLICES=_given(environ, 'SLICES', r'[1-9]\d*', '1'),
    HOSTS=str(count if gpus else count // chips),
  )
  if '://' not in workdir:
    print(
      f'--workdir={workdir} is inside the container and lost with it: give gs://BUCKET/PATH, or a '
      'path of a volume that you add to the manifest',
      file=sys.stderr,
    )
  # Kubernetes would put variables into $(NAME).
  args = [
    flag.replace('$(', '$$(') for flag in arguments.with_preset(flags, 'gpu' if gpus else 'tpu')
  ]
  text = (FOLDER / ('gke_gpu.yaml' if gpus else 'gke.yaml')).read_text(encoding='utf-8')
  return string.Template(text).substitute(values, ARGS=json.dumps(args))


def _given(environ: Mapping[str, str], key: str, pattern: str, default: str = '') -> str:
  value = environ.get(key) or default
  if not re.fullmatch(pattern, value):
    raise UserError(f'expected {key} in the environment, of the form {pattern}, got {value!r}')
  return value
