"""The parts of the bench of fine-tuning: what both sides can do, their runs, what they come to."""

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from bertjax.bench.parts import finetune_rows, timing
from bertjax.bench.parts.rival_finetune import Spec
from bertjax.errors import UserError
from bertjax.metrics import curves
from bertjax.optim import schedules

SIDES = ('ours', 'transformers')
# As transformers' AdamW has it.
_SAME = ('--config.optimizer.bias_correction=True', '--config.preset=cpu')
_RIVAL = 'import sys; from bertjax.bench.parts import rival_finetune as r; r.main(*sys.argv[1:])'


def check(config: Any) -> None:
  """Refuses what the rival cannot do.

  Raises:
    UserError: names the key.
  """
  if config.data.reader != 'labelled' or config.data.task.name not in finetune_rows.KINDS:
    raise UserError(
      'bench finetune: expected classes, numbers, tags or questions, e.g. glue.py, text.py, '
      'tagging.py or squad.py'
    )
  if config.model.get('answers', 'none') != 'none':
    raise UserError('bench finetune: expected config.model.answers=none, as transformers has it')
  if not str(config.init_from).startswith('hf:'):
    raise UserError(
      f'config.init_from={config.init_from!r}: expected hf:DIR, a model that both sides can load'
    )
  if config.optimizer.name != 'adamw' or config.optimizer.layer_decay != 1.0:
    raise UserError('bench finetune: expected config.optimizer.name=adamw without layer_decay')


def spec_of(config: Any, rows: finetune_rows.RivalRows, seed: int) -> Spec:
  """The same for the rival, of the config that our run has kept."""
  schedule = schedules.make(config.optimizer.schedule)
  adam, dev = config.optimizer, config.evals.dev
  return Spec(
    directory=os.path.abspath(config.init_from.removeprefix('hf:')), kind=config.data.task.name,
    train=rows.train, dev=[rows.dev[n] for n in _by_length(rows)], outputs=rows.outputs,
    batch_size=config.batch_size, dev_batch_size=dev.batch_size, steps=config.total_steps,
    eval_steps=config.eval_steps,
    rates=[float(rate) for rate in schedule(np.arange(config.total_steps))],
    b1=adam.b1, b2=adam.b2, eps=adam.eps, weight_decay=adam.weight_decay, clip=adam.clip, seed=seed,
  )  # fmt: skip


def _by_length(rows: finetune_rows.RivalRows) -> np.ndarray:
  """Numbers of the rows of `dev`, from the shortest to the longest."""
  return np.argsort([len(row['input_ids']) for row in rows.dev], kind='stable')


def ours(common: Sequence[str], seed: int, workdir: pathlib.Path) -> dict[str, Any]:
  """Our run: seconds of the whole process and of training, scores of each evaluation."""
  own = [*common, *_SAME, f'--config.seed={seed}', f'--workdir={workdir}']
  whole = _timed([sys.executable, '-m', 'bertjax.main', *own])
  found = curves.read(workdir)
  spent = lambda part: sum(row.get(f'time/{part}', 0.0) for row in found)
  scores = [
    {key.rpartition('/')[2]: value for key, value in row.items() if key.startswith('eval/dev/')}
    for row in found
  ]
  training = spent('compute') + spent('input') + spent('eval')
  return dict(whole=whole, training=training, scores=[each for each in scores if each])


def theirs(spec: Spec, rows: finetune_rows.RivalRows, work: pathlib.Path) -> dict[str, Any]:
  """The same of the rival; `work` is a directory for its files."""
  given, result = work / 'spec.json', work / 'result.npz'
  given.write_text(json.dumps(spec._asdict()))
  whole = _timed([sys.executable, '-c', _RIVAL, str(given), str(result)])
  place_n = np.argsort(_by_length(rows))
  with np.load(result) as found:
    logits = [found[f'logits_{n}'] for n in range(len(found.files) - 1)]
    scores = [rows.judge([each[place] for place in place_n]) for each in logits]
    return dict(whole=whole, training=float(found['seconds']), scores=scores)


def _timed(command: Sequence[str]) -> float:
  start = time.perf_counter()
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  if done.returncode:
    raise UserError(f'{" ".join(command[1:3])} ended with {done.returncode}: {done.stderr[-2000:]}')
  return time.perf_counter() - start


def best(scores: Sequence[dict[str, float]], config: Any) -> float:
  """The score of the best evaluation, by `config.best`."""
  choose = max if config.best.mode == 'max' else min
  return choose(each[config.best.metric.rpartition('/')[2]] for each in scores)


def summary(found: dict[str, list[dict[str, Any]]], config: Any, spec: Spec) -> dict[str, Any]:
  """What is printed."""
  examples = spec.steps * spec.batch_size
  result: dict[str, Any] = dict(
    bench='finetune', config=config.name, train=len(spec.train), dev=len(spec.dev),
    steps=spec.steps, metric=config.best.metric,
  )  # fmt: skip
  for side, runs in found.items():
    scores = [round(best(run['scores'], config), 4) for run in runs]
    result[side] = dict(scores=scores, median=float(np.median(scores)))
    for part in ('whole', 'training'):
      seconds = np.array([run[part] for run in runs])
      result[side][part] = timing.summary(seconds, examples, 'rows')
  result['ratio'] = {
    part: round(result['transformers'][part]['median_s'] / result['ours'][part]['median_s'], 3)
    for part in ('whole', 'training')
  }
  return result | timing.environment()
