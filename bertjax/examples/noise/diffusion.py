"""Masked diffusion's noise: a row hides each token with its own probability t, and weighs it 1/t.

MDLM (Sahoo et al. 2024; kuleshov-group/mdlm, diffusion.py), MD4 (google-deepmind/md4, md4.py) and
LLaDA (ML-GSAI/LLaDA, GUIDELINES.md). Every real token, special ones too, shows [MASK] by a coin
of its own, and no other id. What is hidden is predicted with weight 1/t, and the loss of a row is
divided by all of its tokens (`divisor_B`): its mean over t bounds -log p of a token from above.

t is spread evenly over (least, 1]. MDLM draws it in the strata of a batch, MD4 as one offset and
steps of 1/B; here row after row steps by the golden section from an offset of the seed, so that
any rows that follow each other are spread, whatever the batch, the microbatches and the hosts, and
so are the rows of an evaluation, however far they lie apart in the text.
"""

import dataclasses

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Masking
from bertjax.examples import targets
from bertjax.examples.layout import Rows, place
from bertjax.field_types import Natural, PositiveShare

_PICK = targets.FREE


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.mask`.

  Attributes:
    least: the smallest t, so that no weight exceeds 1 / least; .001 of MDLM and LLaDA.
    static: a token draws the same coin in every epoch; the t that it is compared with is its row's.
    predicted: slots per row in training; where more tokens are hidden, so many of them, at random,
      are predicted and weigh as all; 0: all. Evaluation predicts all.
  """

  least: PositiveShare = 1e-3
  static: bool = False
  predicted: Natural = 0


def slots(options: Options, length: int) -> int:
  """Returns P: predicted, or all tokens of a row."""
  return min(options.predicted or length, length)


def times(number_B: np.ndarray, seed: int, least: float) -> np.ndarray:
  """Returns t of the rows of these numbers, float64 [B]."""
  offset = counter_rng.root(seed, 'diffusion')
  u_B = counter_rng.uniform(offset + number_B.astype(np.uint64) * counter_rng.GOLDEN)
  return least + (1 - least) * (1 - u_B)


def corrupt(rows: Rows, options: Options, store) -> dict[str, np.ndarray]:
  """Masks a batch; see `Masking.corrupt`."""
  t_B, limit = times(rows.number_B, rows.seed, options.least), slots(options, rows.shape[1])
  row_n, mask = rows.row_E[rows.example_n], store.special['mask']
  coin_n = counter_rng.uniform(targets.at_tokens(rows, _PICK, np.arange(len(row_n))))
  hidden_n = coin_n < t_B[row_n]
  index_n = np.flatnonzero(hidden_n)
  # Below t the coins are uniform, so that the lowest are a random part.
  kept_n, _ = targets.within(rows, limit, index_n, coin_n[index_n])
  shown = np.full(len(kept_n), mask), np.ones(len(kept_n), bool)
  none_E = np.zeros(len(rows.row_E), np.int64)
  batch = targets.emit(rows, limit, store, index_n[kept_n], shown, none_E)
  hidden_B = np.bincount(row_n[index_n], minlength=rows.shape[0])
  weight_B = hidden_B / np.clip(hidden_B, 1, limit) / t_B
  tokens_B = np.bincount(rows.row_E, rows.length_E, rows.shape[0])
  token_n = np.where(hidden_n, mask, rows.token_n)
  return batch | dict(
    token_BT=place(rows, token_n, store.special['pad']),
    weight_BP=(batch['weight_BP'] * weight_B[:, None]).astype(np.float32),
    divisor_B=tokens_B.astype(np.float32),
  )


MASKING = Masking(Options, ('pad', 'mask'), targets.check_length, corrupt)
