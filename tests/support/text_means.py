"""The mean of the last states of one text at a time: an oracle of evals/linear_probe.py."""

import jax
import numpy as np

from bertjax.vocab.vocabulary import load_vocabulary


def mean_of(run, variables):
  """Text -> float64 [D], [CLS] and [SEP] among its tokens, by the run's first phase."""
  vocabulary, phase = load_vocabulary(run.store.path / 'vocab'), run.phases[0]
  carry = phase.objective.carry
  last = jax.jit(
    lambda batch: phase.objective.predict(variables, carry(batch), batch)['last_BTD'][0]
  )

  def mean(text):
    (id_n,) = vocabulary.encode_batch([text])
    id_n = [run.store.special['cls'], *id_n, run.store.special['sep']]
    batch = {
      k: np.zeros((1, len(id_n)) if k.endswith('_BT') else (1, *x.shape[1:]), x.dtype)
      for k, x in phase.template.items()
    }
    batch['token_BT'][0], batch['example_BT'][0] = id_n, 1
    batch['position_BT'][0] = np.arange(len(id_n))
    return np.asarray(last(batch), np.float64).mean(0)

  return mean
