"""A run as a list of phases, and the pure function from a step to its phase.

`config.phases` maps names to overrides of the config, in the order of the names, where numbers
count as numbers: phase2 comes before phase10. Each phase also says how long it lasts: `share`
(blocks: 0.9 of all steps, then 0.1, as BERT's two lengths) or `turns` (interleaved: 2 steps of one
and 1 of the other, again and again). Those with `summed` or `drawn` are trained as one: of the
first every step takes a batch of each and sums their losses, each times that number; of labelled
tasks with `drawn` one with n examples comes with a probability proportional to n^(1/T), where T is
`config.temperature`: 1 is by size, and the larger T the more alike they are. Which one a step is of
follows from the seed and the step alone, so hosts agree and a longer run begins alike. Without
phases the run is one phase named 'main'.

The schedule of the learning rate counts the steps of the run, so one schedule goes on through all
phases; `schedule.start` gives a phase a clock of its own. Rows are counted from 0 in each phase:
one that differs from the phase before in its batch alone (a batch that grows) reads the same rows
again, unless it has another `seed`.
"""

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from bertjax import counter_rng
from bertjax.config import sections
from bertjax.errors import UserError
from bertjax.examples import readers
from bertjax.field_types import Count, Natural, Positive
from bertjax.options import convert, override

# Factors of losses, and numbers of examples; 0: as many as there are.
KINDS = dict(summed=Positive, drawn=Natural)
# Keys of which a step has one value, whatever it is of; rows of all that it sums are as many.
STEP_WIDE = dict(
  summed=('batch_size', 'microbatches', 'reduce_dtype', 'optimizer', 'seed'),
  drawn=('microbatches', 'reduce_dtype', 'optimizer', 'seed'),
)


class Draws(NamedTuple):
  """The draw of one of several phases for each step."""

  examples: tuple[int, ...]  # labelled examples of each phase
  temperature: float  # T
  seed: int  # of the run

  def steps(self, total: int) -> np.ndarray:
    """(number of it, number of its batch) of each of the first steps, int64 [total, 2]."""
    size_n = np.array(self.examples, np.float64)
    share_n = np.cumsum((size_n / size_n.max()) ** (1 / self.temperature))
    bits = counter_rng.fold(counter_rng.root(self.seed, 'phase of a step'), np.arange(total))
    drawn = np.searchsorted(share_n, counter_rng.uniform(bits) * share_n[-1], side='right')
    found = np.zeros((total, 2), np.int64)
    for phase in range(len(self.examples)):
      own = np.flatnonzero(drawn == phase)
      found[own, 0], found[own, 1] = phase, np.arange(len(own))
    return found


class Combined(NamedTuple):
  """Phases that are trained as one."""

  parts: tuple[Any, ...]  # the phases (timeline.PhaseConfig)
  factors: tuple[float, ...]  # of their losses
  draws: Draws | None = None  # by what each step is of one of them; None: each is of all


def combine(kind: str, config: Any, phases: Sequence[Any], weights: Sequence[float]) -> Combined:
  """Combines phases, each of which says `kind` with a weight. Raises UserError if they are drawn,
  and not of labelled examples of one vocabulary."""
  if kind == 'summed':
    return Combined(tuple(phases), tuple(weights))
  for phase in phases:
    if (reader := phase.config.data.reader) != 'labelled':
      raise UserError(
        f'config.phases.{phase.name}.drawn is for labelled examples: expected config.data.reader='
        f"'labelled', got {reader!r}; others take turns"
      )
    if phase.config.data.vocab != config.data.vocab:
      raise UserError(
        f'config.phases.{phase.name}.data.vocab={phase.config.data.vocab}: the encoder that tasks '
        'share has one vocabulary; set config.data.vocab'
      )
  draws = Draws(tuple(map(int, weights)), config.temperature, config.seed)
  return Combined(tuple(phases), (1.0,) * len(phases), draws)


LASTS = dict(share=Positive, turns=Count, **KINDS)  # how long a phase lasts
# Keys that belong to the run and not to a phase.
RUN_WIDE = (
  'name', 'total_steps', 'log_steps', 'eval_steps', 'checkpoint_steps', 'keep_checkpoints', 'best',
  'save_carry', 'mesh', 'sharding_rules', 'phases', 'init_from', 'profile',
  'skip_nonfinite', 'skip_steps', 'spike', 'epochs', 'minutes', 'temperature', 'preset', 'trackers',
  'remap_vocab',
)  # fmt: skip


class PhaseConfig(NamedTuple):
  """One phase."""

  name: str
  config: Any  # that of the run with its overrides applied, references resolved
  # of several that are trained as one, whose first one has this config
  combined: Combined | None = None


@contextlib.contextmanager
def named(phase: PhaseConfig) -> Iterator[None]:
  """Names the phase, where there are several, in a UserError."""
  try:
    yield
  except UserError as error:
    if not phase.config.phases:
      raise
    raise UserError(f'in phase {phase.name!r}: {error}') from error


class Timeline(NamedTuple):
  """The steps at which each phase runs."""

  phases: tuple[PhaseConfig, ...]  # in order
  lengths: tuple[int, ...]  # steps of each phase within one cycle
  total: int  # steps of the run. Blocks are one cycle that fills it; turns repeat until it.
  interleaved: bool = False  # whether the phases take turns
  # (first, last) of steps, counted from 1, whose batches are left out
  skips: tuple[tuple[int, int], ...] = ()

  @property
  def parts(self) -> tuple[PhaseConfig, ...]:
    """The phases of the config: those that are trained as one apart."""
    return tuple(part for p in self.phases for part in (p.combined.parts if p.combined else (p,)))

  @property
  def drawn(self) -> tuple[PhaseConfig, ...]:
    """Tasks with heads of their own, of which each step is one; () of any other run."""
    return self.parts if self.phases[0].combined and self.phases[0].combined.draws else ()

  @property
  def unmet(self) -> tuple[str, ...]:
    """Phases that the run ends before."""
    ends = itertools.accumulate(self.lengths)
    reached = zip(self.phases, self.lengths, ends, strict=True)
    return tuple(p.name for p, steps, end in reached if not steps or end - steps >= self.total)

  @property
  def side_by_side(self) -> bool:
    """True if all phases are trained, and evaluated, throughout the run."""
    return self.interleaved or self.phases[0].combined is not None

  def at(self, step: int) -> tuple[int, int]:
    """(phase, data index) of a step: its phase, and how many earlier steps were of that phase."""
    cycle, rest = divmod(step, sum(self.lengths))
    for phase, length in enumerate(self.lengths):
      if rest < length:
        return phase, cycle * length + rest
      rest -= length
    raise AssertionError('unreachable: rest < sum(lengths)')

  def leaves_out(self, done: int) -> bool:
    """Returns whether the batch of step `done`, counted from 1, is skipped (config.skip_steps)."""
    return any(first <= done <= last for first, last in self.skips)


def _skips(steps: Any) -> tuple[tuple[int, int], ...]:
  """`config.skip_steps` as (first, last) pairs."""
  pairs = [(step, step) if isinstance(step, int) else tuple(step) for step in steps]
  for first, last in pairs:
    if first > last:
      raise UserError(f'config.skip_steps: expected (first, last) in order, got ({first}, {last})')
  return tuple(pairs)


def _in_order(names: Any) -> list[str]:
  """Names by their words and numbers: phase2 before phase10."""
  parts = lambda name: [int(p) if p.isdecimal() else p for p in re.split(r'(\d+)', name)]
  return sorted(names, key=parts)


def _check_own(name: str, overrides: Any, data: Any) -> None:
  """Refuses overrides of keys that the whole run, or a step of several phases, has one value of."""
  wide: dict[str, str] = dict.fromkeys(RUN_WIDE, 'the whole run')
  for kind in KINDS.keys() & overrides.keys():
    wide |= dict.fromkeys(STEP_WIDE[kind], 'a step of several phases')
  own = overrides.get('data', {})
  if own:
    wide |= {f'data.{key}': 'the whole run' for key in readers.of(data).of_run}
  if 'drawn' in overrides:
    wide.pop('data.vocab', None)  # each task may say it: `combine`
  for key in (*overrides, *(f'data.{key}' for key in own)):
    if key in wide:
      raise UserError(
        f'config.phases.{name}.{key}: {wide[key]} has one value of it; set config.{key}, or leave '
        'it out'
      )


def make(config: Any) -> Timeline:
  """Applies the overrides of `config.phases` to a ConfigDict. Raises UserError: a phase without
  share, turns, summed or drawn, a mix of them, or an override of an unknown key or of one that a
  phase has no value of its own for; or as `combine`."""
  resolved: Any = config.copy_and_resolve_references()
  sections.complete(resolved)
  total, skips = resolved.total_steps, _skips(resolved.skip_steps)
  if not resolved.phases:
    return Timeline((PhaseConfig('main', resolved),), (total,), total, skips=skips)
  phases, weights, kinds = [], [], set()
  for name in _in_order(resolved.phases):
    overrides = resolved.phases[name]
    if not hasattr(overrides, 'items'):
      raise UserError(f'config.phases.{name}: expected a dict of overrides, got {overrides!r}')
    kind = [k for k in LASTS if k in overrides]
    if len(kind) != 1:
      got = kind or 'none'
      raise UserError(f'config.phases.{name} needs one of {", ".join(LASTS)}, got {got}')
    kinds.add(kind[0])
    weights.append(convert(LASTS[kind[0]], overrides[kind[0]], f'config.phases.{name}.{kind[0]}'))
    _check_own(name, overrides, resolved.get('data'))
    changed = resolved.copy_and_resolve_references()
    body = ConfigDict({k: v for k, v in overrides.items() if k != kind[0]})
    sets: Any = body.get('evals', {})
    for own, judged in sets.items():
      if own not in changed.evals and 'type' in judged:
        with changed.unlocked():
          changed.evals[own] = judged  # a set that this phase alone has
    override(changed, body, f'config.phases.{name}')
    sections.complete(changed)
    phases.append(PhaseConfig(name, changed))
  if len(kinds) != 1:
    mixed = ' and '.join(sorted(kinds))
    raise UserError(f'config.phases mixes {mixed}: give every phase the same kind')
  if kinds <= KINDS.keys():
    (kind,) = kinds
    whole = combine(kind, resolved, phases, weights)
    one = PhaseConfig('+'.join(p.name for p in phases), phases[0].config, whole)
    return Timeline((one,), (total,), total, skips=skips)
  if kinds == {'turns'}:
    return Timeline(tuple(phases), tuple(int(w) for w in weights), total, True, skips)
  ends = [round(total * sum(weights[: i + 1]) / sum(weights)) for i in range(len(weights))]
  lengths = tuple(end - start for start, end in zip([0, *ends[:-1]], ends, strict=True))
  return Timeline(tuple(phases), lengths, total, skips=skips)
