"""The plan of a comparison, WORKDIR/compare.json: what was asked for, and the steps of each arm."""

import copy
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from bertjax import json_files
from bertjax.checkpoint import may_differ
from bertjax.checkpoint.resume import as_json
from bertjax.comparison import arms as arms_lib
from bertjax.comparison import budget as budget_lib
from bertjax.comparison.arms import Arm, Text
from bertjax.comparison.budget import Budget, Cost
from bertjax.errors import UserError
from bertjax.launch import grid
from bertjax.machine import copies, durable, locks
from bertjax.store import ensure
from bertjax.store.reader import open_store

NAME = 'compare.json'
OF_VOCABULARY = ('input', 'vocab', 'set')  # of what is asked: a trained one follows from them
FORMAT = 3  # 2 did not keep the configs of arms; 1 counted four batches of each, up to 5% off


class Asked(NamedTuple):
  """The command line."""

  text: Text
  arms: Sequence[Arm]
  budget: Budget
  rates: Sequence[float]  # factors of each recipe's peak
  seeds: int
  same: Mapping[str, Any]  # what all runs of a workdir must have in common, as JSON values

  def peaks(self, arm: Arm) -> list[str]:
    """Returns the peak learning rates of an arm."""
    peak = arm.config.optimizer.schedule.peak
    return [f'{peak * rate:.6g}' for rate in self.rates]


class Planned(NamedTuple):
  """An arm whose length is settled."""

  arm: Arm
  cost: Cost
  steps: int
  store: pathlib.Path


def check_workdir(
  workdir: pathlib.Path, same: Mapping[str, Any], arms: Sequence[Arm]
) -> dict[str, Any]:
  """Returns arm -> its record in the workdir. Raises UserError if that is of another comparison, or
  of a run, or has runs of an arm by another config: its file, or the machine, is another."""
  path = workdir / NAME
  if (workdir / 'config.json').exists():
    raise UserError(f'--workdir={workdir} holds a run: name another directory')
  if not path.exists():
    return {}
  found = json_files.read(path, dict, ': remove it, and the runs beside it')
  before = found.get('same', {}) if found.get('format') == FORMAT else {'format': FORMAT}
  keys = {*before, *same}
  if not found.get('arms'):  # broken off before it had any: there may be a vocabulary, and no more
    keys &= {'format', *OF_VOCABULARY} if (workdir / 'vocab').exists() else {'format'}
  # Of a key that there was not yet the record says nothing.
  if differing := sorted(key for key in keys if before.get(key, same.get(key)) != same.get(key)):
    lines = [f'\n  {key}: expected {before.get(key)!r}, got {same.get(key)!r}' for key in differing]
    raise UserError(
      f'{workdir} holds another comparison:{"".join(lines)}\nArms, rates and seeds may be added to '
      'it; for another one name another --workdir'
    )
  known = found.get('arms', {})
  for arm in [arm for arm in arms if arm.name in known]:
    if differing := may_differ.config_differences(known[arm.name]['config'], as_json(arm.config)):
      lines = [f'\n  config.{key}: expected {a!r}, got {b!r}' for key, a, b in differing]
      raise UserError(
        f'{workdir} has runs of {arm.name} by another config:{"".join(lines)}\nPut the config back '
        '(a preset goes by the machine: take one of the same kind), or name another --workdir'
      )
  return known


def make(asked: Asked, workdir: pathlib.Path, writes: bool) -> list[Planned]:
  """Returns the arms with their steps. With `writes` vocabulary, stores and the record are made in
  the workdir, by one process at a time; without them steps are counted on made-up text, and timed.
  Raises UserError, before anything is written, as `check_workdir` and `arms.check_vocabulary`, or
  for a budget that buys too little."""
  known = check_workdir(workdir, asked.same, asked.arms)
  arms_lib.check_files(asked.arms, asked.text)
  arms_lib.check_vocabulary(asked.arms, asked.text)
  costs = {}
  for arm in asked.arms:
    costs[arm.name] = _counted(asked, arm, workdir, known)
    if asked.budget.kind != 'seconds' and arm.name not in known:
      asked.budget.steps(costs[arm.name])  # too few: before another arm is counted, or timed
  if asked.budget.kind == 'seconds' or not writes:
    new = [arm for arm in asked.arms if arm.name not in known]
    costs |= {a.name: budget_lib.timed(a, asked.text.ids, costs[a.name]) for a in new}
  planned = _planned(asked, workdir, known, costs)
  if not writes:
    return planned
  workdir.mkdir(parents=True, exist_ok=True)
  with locks.in_turn(workdir / 'compare.lock', lambda who: copies.to_stderr(f'waits for {who}')):
    known = check_workdir(workdir, asked.same, asked.arms)
    write = lambda arms: durable.write_json(
      workdir / NAME, dict(format=FORMAT, same=dict(asked.same), arms=arms)
    )
    write(known)  # before there is a vocabulary, which another comparison would take for its own
    for arm in asked.arms:
      _make_store(arm, workdir)
      cost = _counted(asked, arm, workdir, known)
      costs[arm.name] = cost._replace(seconds=cost.seconds or costs[arm.name].seconds)
    planned = _planned(asked, workdir, known, costs)
    of = lambda p: dict(cost=p.cost._asdict(), steps=p.steps, config=as_json(p.arm.config))
    write(known | {p.arm.name: of(p) for p in planned})
  return planned


def _counted(asked: Asked, arm: Arm, workdir: pathlib.Path, known: Mapping[str, Any]) -> Cost:
  """Returns the cost that is known, or counted on the arm's store; before there is one on made-up
  text."""
  if kept := known.get(arm.name):
    return Cost(**kept['cost'])
  home = workdir / 'stores' / arm.store
  store = open_store(home / 'store') if (home / 'store' / 'store.json').exists() else None
  ids = store.vocabulary_size if store else asked.text.ids
  return budget_lib.counted(arm, ids, store, str(home / 'plans'))


def _planned(
  asked: Asked, workdir: pathlib.Path, known: Mapping[str, Any], costs: Mapping[str, Cost]
) -> list[Planned]:
  of = lambda arm: known[arm]['steps'] if arm in known else asked.budget.steps(costs[arm])
  home = lambda arm: workdir / 'stores' / arm.store / 'store'
  return [Planned(arm, costs[arm.name], of(arm.name), home(arm)) for arm in asked.arms]


def _make_store(arm: Arm, workdir: pathlib.Path) -> None:
  """Makes the vocabulary of all arms, and the store of this one, where they are not there yet."""
  data, seed = copy.deepcopy(arm.config.data), arm.config.seed
  vocab = ensure.vocabulary(data, ensure.text(data), seed, str(workdir))
  with data.unlocked():
    data.update(dict(vocab=vocab, train_vocab=dict(type='', size=data.train_vocab.size)))
  home = workdir / 'stores' / arm.store
  home.mkdir(parents=True, exist_ok=True)
  ensure.ensure_store(data, seed, str(home))


def table(asked: Asked, planned: Sequence[Planned], counted: str) -> Table:
  """Returns a row for each arm: its cost, the steps that the budget buys, what its runs take."""
  budget = asked.budget
  title = f'{budget.amount:g} {budget.kind} each; steps counted on {counted}'
  shown = Table(title=title, title_justify='left')
  headings = (
    'arm', 'parameters', 'FLOPs/step', 'tokens/step', 'steps', 'tokens', 'warm-up', 'peaks', 'runs',
    'hours, estimated', 'GB of disk', 'store',
  )  # fmt: skip
  for heading in headings:
    shown.add_column(heading, justify='left' if heading in ('arm', 'store') else 'right')
  total, disk = 0.0, 0.0
  for arm, cost, steps, store in planned:
    peaks = asked.peaks(arm)
    runs = len(peaks) * asked.seeds
    after = grid.changed_by(arm.config, dict(total_steps=str(steps)), '--flops')
    warmup = after.optimizer.schedule.get('warmup_steps', 0)
    hours = None if cost.seconds is None else cost.seconds * steps * runs / 3600
    held = 2 * cost.state_bytes * runs / 1e9  # the newest checkpoint and the best
    total, disk = total + (hours or 0.0), disk + held
    shown.add_row(
      escape(arm.name), f'{cost.parameters:,}', f'{cost.flops:.3g}', f'{cost.tokens:,.0f}',
      f'{steps:,}', f'{cost.tokens * steps:,.0f}', f'{warmup:,}', ', '.join(peaks), str(runs),
      '-' if hours is None else f'{hours:.2f}', f'{held:.2f}', store.parent.name,
    )  # fmt: skip
  shown.caption = f'{disk:.2f} GB of checkpoints' + (f', {total:.2f} hours' if total else '')
  return shown
