"""python -m bertjax.bench finetune: what fine-tuning takes and reaches, here and with transformers.

  python -m bertjax.bench finetune --config=configs/finetune/glue.py:sst2 --seeds=3 \
      --config.init_from=hf:DIR --config.data.train=train.tsv --config.data.dev=dev.tsv

Classes, numbers, tags or questions. Each seed is a run of `bertjax.main` and one of transformers'
Trainer with the same weights, rows, rates and AdamW, in turn, each in a process of its own. AdamW
is the Trainer's, with bias correction, whatever `config.optimizer.bias_correction` says. Both put
rows of like lengths in a batch (ours pads it to one of four lengths) and answer the development set
once an epoch; what they answer is judged by the same evaluator. `whole` is the time of the process;
`training` that of steps and evaluations alone, ours without compiling steps. `ratio` is theirs over
ours. `scores` are those of the best evaluation.
"""

import json
import pathlib
import sys
import tempfile
from typing import Any

from absl import flags
from ml_collections import config_flags

from bertjax.bench.parts import finetune_rows
from bertjax.bench.parts.finetune_time import SIDES, best, check, ours, spec_of, summary, theirs
from bertjax.checkpoint import resume
from bertjax.config import command_line
from bertjax.data.seqio_tasks import row_stream
from bertjax.launch.arguments import without_flags

_CONFIG = config_flags.DEFINE_config_file('config', None, 'Config of the fine-tuning.')
_SEEDS = flags.DEFINE_integer('seeds', 1, 'Runs of each side.', lower_bound=1)
flags.mark_flag_as_required('config')


def main() -> None:
  """Trains both and prints one JSON line."""
  config = _CONFIG.value
  check(config)
  common = list(without_flags(command_line.located(sys.argv)[2:], ('seeds',), ()))
  found: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
  for seed in range(config.seed, config.seed + _SEEDS.value):
    with tempfile.TemporaryDirectory() as directory:
      work = pathlib.Path(directory)
      found['ours'].append(ours(common, seed, work / 'run'))
      stored = resume.stored_config(str(work / 'run'))
      rows = finetune_rows.make(stored, row_stream.open_vocabulary(str(work / 'run')))
      spec = spec_of(stored, rows, seed)
      found['transformers'].append(theirs(spec, rows, work))
    for side in SIDES:
      last = found[side][-1]
      sys.stderr.write(
        f'seed {seed}, {side}: {last["whole"]:.1f} s, {last["training"]:.1f} s of them training, '
        f'best {config.best.metric} {best(last["scores"], config):.4f}\n'
      )
  json.dump(summary(found, config, spec), sys.stdout)  # pyright: ignore[reportPossiblyUnbound]
  sys.stdout.write('\n')
