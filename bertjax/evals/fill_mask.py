"""Top predictions for sentences with [MASK], to look at what a model has learned."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bertjax.errors import UserError
from bertjax.types import Batch

BLANK = '[MASK]'


def encode(
  sentences: Sequence[str],
  encode_batch: Callable[[list[str]], Sequence[Any]],
  special: Mapping[str, int | None],
  template: Batch,
) -> Batch:
  """Sentences with [MASK] as a batch shaped like `template`.

  Raises:
    UserError: no [MASK] or more than slots, a sentence too long, more sentences than rows.
  """
  batch = {k: np.zeros_like(v) for k, v in template.items()}
  rows, length = batch['token_BT'].shape
  slots = batch['target_pos_BP'].shape[1]
  if len(sentences) > rows:
    raise UserError(f'{len(sentences)} sentences, but eval.batch_size={rows}: give fewer')
  for row, sentence in enumerate(sentences):
    pieces = [list(ids) for ids in encode_batch(sentence.split(BLANK))]
    ids = [special['cls'], *pieces[0]]
    columns = []
    for piece in pieces[1:]:
      columns.append(len(ids))
      ids += [special['mask'], *piece]
    ids.append(special['sep'])
    if not 0 < len(columns) <= slots or len(ids) > length:
      raise UserError(
        f'{sentence!r}: expected 1 to {slots} times {BLANK} and at most {length} tokens, '
        f'got {len(columns)} and {len(ids)}'
      )
    batch['token_BT'][row, : len(ids)] = ids
    batch['example_BT'][row, : len(ids)] = 1
    batch['position_BT'][row, : len(ids)] = np.arange(len(ids))
    batch['target_pos_BP'][row, : len(columns)] = columns
    batch['weight_BP'][row, : len(columns)] = 1.0
  return batch


def top_predictions(
  predict: Callable[..., dict[str, jax.Array]],
  variables: Any,
  carry: Any,
  batch: Batch,
  put: Callable[[Batch], Any],
  count: int = 5,
) -> list[list[list[tuple[int, float]]]]:
  """The `count` likeliest ids with their probabilities, per sentence and per mask."""
  top = jax.jit(
    lambda variables, carry, batch: jax.lax.top_k(
      jax.nn.softmax(predict(variables, carry, batch)['logits_BPV']), count
    )
  )
  prob_BPC, id_BPC = jax.device_get(top(variables, carry, put(batch)))
  used_BP = np.asarray(batch['weight_BP']) > 0
  return [
    [
      list(zip(map(int, id_BPC[row, slot]), map(float, prob_BPC[row, slot]), strict=True))
      for slot in np.flatnonzero(used_BP[row])
    ]
    for row in np.flatnonzero(used_BP.any(1))
  ]
