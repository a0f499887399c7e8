"""Texts that a model writes token by token, beside its scores of the whole texts."""

import jax
import jax.numpy as jnp
import numpy as np


def check_token_by_token(model, variables, token_BT, whole_BTV, lengths, close, **more) -> None:
  """Holds the scores of the first four tokens behind prompts against those of whole texts.

  Args:
    model: one that writes text.
    variables: its own.
    token_BT: the texts.
    whole_BTV: its scores of them, of the words alone.
    lengths: of the prompts, which begin the texts; before short ones stands padding.
    close: tolerances.
    **more: what the batch of the prompts has besides.
  """
  longest, words, rows = max(lengths), whole_BTV.shape[2], np.arange(len(token_BT))
  real_BT = np.arange(longest) >= longest - np.array(lengths)[:, None]
  prompt_BT = np.zeros(real_BT.shape, np.int32)
  for row, length in enumerate(lengths):
    prompt_BT[row, longest - length :] = token_BT[row, :length]
  batch = dict(more, token_BT=jnp.asarray(prompt_BT), example_BT=jnp.asarray(real_BT, jnp.int32))
  found, text = jax.jit(lambda v: model.apply(v, batch, 4, method='start'))(variables)
  step = jax.jit(lambda token_B, text: model.apply(variables, token_B, text, method='step'))
  for place in range(4):
    at = np.array(lengths) + place - 1
    np.testing.assert_allclose(found[:, :words], whole_BTV[rows, at], **close)
    assert np.all(np.asarray(found)[:, words:] == -np.inf)
    found, text = step(jnp.asarray(token_BT[rows, at + 1], jnp.int32), text)
