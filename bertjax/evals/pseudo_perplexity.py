"""Pseudo-perplexity: each token predicted from all the others (Salazar et al. 2020, eq. 2)."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import jax
import numpy as np

from bertjax.errors import UserError, warn_once
from bertjax.evals.held_out import rows as rows_lib
from bertjax.field_types import Natural
from bertjax.metrics.progress import passing
from bertjax.types import Batch, Evaluation, Evaluator, Report, Subject, Variables

TOKENS = 1 << 19  # read in all, about: 8 rows of 256; a row costs the square of its length


class Options(NamedTuple):
  """The rows to score.

  Attributes:
    rows: number of rows, the first ones of `config.evals.held_out`, each of which costs one forward
      pass for each of its tokens; 0: none. Of the default fewer where they are long, see TOKENS;
      another number is taken as given.
  """

  rows: Natural = 8


def restore(batch: Batch) -> np.ndarray:
  """Returns the original ids of a corrupted batch: targets written back. int32 [B, T]."""
  token_BT = np.array(batch['token_BT'])
  row_S, slot_S = np.nonzero(batch['weight_BP'])
  token_BT[row_S, batch['target_pos_BP'][row_S, slot_S]] = batch['target_BP'][row_S, slot_S]
  return token_BT


def one_at_a_time(batch: Batch, rows: int, special: Mapping[str, int | None]) -> Iterator[Batch]:
  """Yields batches of the same shapes in which each row hides one token of the first `rows` rows of
  a corrupted batch; special tokens are not scored."""
  token_BT = restore(batch)
  kept = [i for name, i in special.items() if i is not None and name != 'unk']
  scored_BT = (np.asarray(batch['example_BT']) > 0) & ~np.isin(token_BT, kept)
  row_N, column_N = np.nonzero(scored_BT[:rows])
  size = token_BT.shape[0]
  for start in range(0, len(row_N), size):
    row_n, column_n = row_N[start : start + size], column_N[start : start + size]
    count = len(row_n)
    part = {k: np.zeros_like(v) for k, v in batch.items()}
    for name in batch:
      if name.endswith(('_BT', '_BG')):
        part[name][:count] = token_BT[row_n] if name == 'token_BT' else batch[name][row_n]
    line_n = np.arange(count)
    part['target_BP'][:count, 0] = token_BT[row_n, column_n]
    part['target_pos_BP'][:count, 0] = column_n
    part['weight_BP'][:count, 0] = part['masked_BP'][:count, 0] = 1.0
    part['token_BT'][line_n, column_n] = special['mask']
    yield part


def affordable(rows: int, columns: int) -> int:
  """Returns how many rows of so many columns are scored, see Options; says it if they are fewer."""
  most = min(rows, max(TOKENS // columns**2, 1)) if rows == Options().rows else rows
  if most < rows:
    warn_once(
      f'pseudo_perplexity scores {most} rows of {columns} tokens, since {rows} would take long: '
      'another number of rows, of config.evals, is taken as given'
    )
  return most


def pseudo_perplexity(
  held_out: rows_lib.HeldOut, variables: Variables, parts: Iterable[Batch]
) -> float:
  """exp of the mean -log p(token | all others) over the tokens that batches hide one at a time."""
  total, weight, carry = 0.0, 0.0, held_out.carry()
  for part in parts:
    sums, _ = held_out.step(variables, carry, held_out.put(part))
    nll, count = jax.device_get(sums['mlm_masked'])
    total, weight = total + float(nll), weight + float(count)
  return math.exp(total / weight)


def make(subject: Subject, options: Options) -> Evaluation:
  """`pseudo_perplexity` of the first held-out rows. Raises UserError: a vocabulary without a mask
  token."""
  held_out = rows_lib.hold_out(*rows_lib.main_set(subject))
  if held_out is None:
    return rows_lib.NOTHING
  if subject.store.special['mask'] is None:
    raise UserError(
      'config.evals: pseudo_perplexity hides tokens behind the mask token, which the vocabulary of '
      f'{subject.store.path} has none of: set its rows=0'
    )

  columns = held_out.template['token_BT'].shape[1]
  rows = affordable(min(options.rows, held_out.rows.rows), columns)

  def run(variables: Variables, step: int) -> Report:
    parts = (
      part
      for batch, count in held_out.first(rows)
      for part in one_at_a_time(batch, count, subject.store.special)
    )
    parts = passing('Pseudo-perplexity', parts, -(-rows * columns // held_out.batch_size))
    return Report(dict(pseudo_perplexity=pseudo_perplexity(held_out, variables, parts)))

  return Evaluation(frozenset(['pseudo_perplexity']), run)


EVALUATOR = Evaluator(Options, make, idle=lambda options: not options.rows, at_end=True)
