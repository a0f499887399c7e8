"""Trains systems at equal compute and writes a page: python -m bertjax.compare --arms=...

  python -m bertjax.compare --arms=bert,roberta,electra,gpt --size=tiny --flops=3e13 --seeds=2 \
      --input='text/*.txt' --heldout=valid.txt --workdir=runs/compare

All arms read one text through one vocabulary and have one budget, FLOPs by each model's own count
(generator, second stream, decoder and head are in it), tokens or seconds. An arm is a config of
configs/, NAME, NAME:SIZE or NAME[KEY=VALUE,...], or a file of your own. Each is trained with
several learning rates and seeds; the same command goes on where it was stopped, and given on
several machines that share the workdir it divides runs and scores among them.
"""

import glob
import itertools
import pathlib
import shlex
import sys
from typing import Any

from absl import flags
from rich.console import Console

from bertjax.config import command_line
from bertjax.errors import UserError, door
from bertjax.machine import compiled, copies, remote

_ARMS = flags.DEFINE_string('arms', None, 'NAME[:SIZE][[KEY=VALUE,...]] of configs/, with commas.')
_SIZE = flags.DEFINE_string('size', 'tiny', 'Size of the arms that do not name their own.')
_FLOPS = flags.DEFINE_float('flops', None, 'Budget of a run in FLOPs.', 0.0)
_TOKENS = flags.DEFINE_float('tokens', None, 'Instead: in real tokens read.', 0.0)
_SECONDS = flags.DEFINE_float('seconds', None, 'Instead: in seconds of steps, timed here.', 0.0)
_SEEDS = flags.DEFINE_integer('seeds', 3, 'Runs of each learning rate.', 1)
_RATES = flags.DEFINE_list('rates', ['0.5', '1', '2'], "Factors of each recipe's peak rate.")
_INPUT = flags.DEFINE_string('input', None, 'Text to train on, as of bertjax.prepare.')
_HELDOUT = flags.DEFINE_string('heldout', '', 'Text to judge on. Default: 1% of the documents.')
_VOCAB = flags.DEFINE_string(
  'vocab', 'wordpiece:8000', 'Vocabulary of all arms: a path, or KIND:SIZE of one to be trained.'
)
_SET = flags.DEFINE_multi_string('set', [], 'KEY=VALUE of all configs, e.g. batch_size=16.')
_FINETUNE = flags.DEFINE_string(
  'finetune', '', 'Config of a task that the best runs are fine-tuned on, and probed by.'
)
_FINETUNE_SET = flags.DEFINE_multi_string('finetune_set', [], 'KEY=VALUE of that config.')
_FINETUNE_RATES = flags.DEFINE_list(
  'finetune_rates', ['1'], 'Factors of the peak rate of --finetune; each arm takes its best.'
)
_PAIRS = flags.DEFINE_string(
  'pairs', '', 'Minimal pairs: .jsonl with sentence_good and sentence_bad.'
)
_PAGE = flags.DEFINE_list(
  'page',
  [],
  'Train nothing: write the page of these runs, workdirs or patterns with *, to --workdir.',
)
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Directory of stores, runs and page.', required=True
)
_DRY_RUN = flags.DEFINE_bool(
  'dry_run', False, 'Print steps, FLOPs, hours (estimated) and disk; write and train nothing.'
)


def main() -> int:
  """Makes the plan of the comparison, trains it and writes its page; 1 if a run failed."""
  from bertjax.comparison import arms as arms_lib
  from bertjax.comparison import page, plan, results, runs, tasks
  from bertjax.train import opening

  remote.require_local(_WORKDIR.value, '--workdir')
  workdir = pathlib.Path(_WORKDIR.value or '')
  command = shlex.join(['python', '-m', 'bertjax.compare', *sys.argv[1:]])
  if _PAGE.value:
    named = [path for given in _PAGE.value for path in sorted(glob.glob(given)) or [given]]
    page.write([results.read(path) for path in named], workdir, command)
    return 0
  asked = _asked()
  text = _HELDOUT.value if arms_lib.in_files(asked.arms, _HELDOUT.value) else ''
  rates = _factors('finetune_rates')
  judged = tasks.make(_FINETUNE.value, _FINETUNE_SET.value, _PAIRS.value, text, rates)
  asked = asked._replace(same={**asked.same, **judged.texts})
  planned = plan.make(asked, workdir, not _DRY_RUN.value)
  counted = 'made-up text where there is no store' if _DRY_RUN.value else 'the stores'
  Console(width=None if sys.stdout.isatty() else 160).print(plan.table(asked, planned, counted))
  if _DRY_RUN.value:
    return 0
  arms = [runs.of_arm(asked, each, workdir, judged.flags(each.arm)) for each in planned]
  # A seed of each arm and rate before the next one.
  order = [run for row in itertools.zip_longest(*arms) for run in row if run]
  due = [run for arm in arms for run in [run for run in arm if not run.finished][:1]]
  opening.check({f'--arms={run.arm}': (run.job.config, run.directory) for run in due if run.job})
  failed, read = runs.train(order), lambda arm: [results.read(run.directory, run) for run in arm]
  best = {result.directory for arm in arms for result in results.chosen(read(arm))}
  chosen, unscored = [run for run in order if run.directory in best], []
  if judged.file:
    failed += runs.train([tuning for run in chosen for tuning in judged.tuning(run)])
  if judged.judges:
    score = lambda run: tasks.score(run, judged)
    unscored = runs.divided('scores', chosen, tasks.is_scored, score, tasks.is_scored)
  page.write([each for arm in arms for each in read(arm)], workdir, command)
  for run in failed:
    print(f'failed: {run.name}; see {run.beside("log")}')
  return 1 if failed or unscored else 0


def _asked() -> Any:
  """Returns the `plan.Asked` of the flags. Raises UserError if they ask for nothing that can be."""
  from bertjax.comparison import arms, budget, plan

  if lacking := [f'--{name}' for name in ('arms', 'input') if not flags.FLAGS[name].value]:
    raise UserError(f'expected {", ".join(lacking)}: see --help')
  given = {kind: flags.FLAGS[kind].value for kind in budget.KINDS}
  amounts = {kind: amount for kind, amount in given.items() if amount is not None}
  if len(amounts) != 1:
    named = ', '.join(f'--{kind}' for kind in budget.KINDS)
    said = ' and '.join(f'--{kind}' for kind in amounts) or 'none'
    raise UserError(f'expected one budget of {named}, got {said}')
  text = arms.Text(_INPUT.value or '', _HELDOUT.value, _VOCAB.value)
  same = dict(text._asdict(), size=_SIZE.value, set=_SET.value, **amounts)
  same |= dict(finetune=_FINETUNE.value, finetune_set=_FINETUNE_SET.value, pairs=_PAIRS.value)
  found = arms.parse(_ARMS.value or '', _SIZE.value, text, _SET.value)
  return plan.Asked(
    text, found, budget.Budget(*next(iter(amounts.items()))), _factors('rates'), _SEEDS.value, same
  )


def _factors(flag: str) -> list[float]:
  """Returns the factors of peak rates that a flag has. Raises UserError: they are none."""
  given: list[str] = flags.FLAGS[flag].value or []
  try:
    rates = [float(rate) for rate in given]
  except ValueError:
    rates = []
  if not rates or min(rates) <= 0 or len({*rates}) < len(rates):
    raise UserError(f'--{flag}: expected factors such as 0.5,1,2, got {",".join(given)!r}')
  return rates


if __name__ == '__main__':
  with door('bertjax.compare'):
    compiled.keep(copies.cache())
    command_line.run(main, 'bertjax.compare')
