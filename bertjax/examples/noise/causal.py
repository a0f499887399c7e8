"""Causal language modelling: every token is predicted from those before it, and nothing is hidden.

The target of a position is the next token of its example; the last one of an example has a target
where the plan tells what comes after (`Ranges.ahead`). XLM's CLM step (facebookresearch/XLM,
trainer.py:clm_step without context), GPT's and Transformer-XL's loss. The model must see no later
token: `config.model.attend='causal'`.
"""

import numpy as np

from bertjax.data_contracts import Masking
from bertjax.examples.layout import Rows, place
from bertjax.examples.targets import is_special
from bertjax.options import NoOptions


def corrupt(rows: Rows, options: NoOptions, store) -> dict[str, np.ndarray]:
  """Makes a batch of next tokens with P = T slots, slot t being column t; masked_BP is weight_BP
  without [CLS] and [SEP]."""
  token_n, example_n = rows.token_n, rows.example_n
  followed_n = np.append(example_n[1:] == example_n[:-1], False)
  next_n = np.append(token_n[1:], 0)
  if rows.after_E is not None:
    next_n[~followed_n] = rows.after_E
    followed_n[:] = True
  weight_BP = place(rows, followed_n).astype(np.float32)
  return dict(
    token_BT=place(rows, token_n, store.special['pad'] or 0),
    target_pos_BP=place(rows, rows.cell_n % rows.shape[1] * followed_n),
    target_BP=place(rows, next_n * followed_n),
    weight_BP=weight_BP,
    masked_BP=weight_BP * place(rows, ~is_special(next_n, store)).astype(np.float32),
    dropped_B=np.zeros(rows.shape[0], np.int32),
  )


MASKING = Masking(
  NoOptions,
  (),
  lambda options, store, length: None,
  corrupt,
  targets=('next',),
)
