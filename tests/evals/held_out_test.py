"""What a model gives for held-out examples: how often a program is compiled for them."""

import types

import numpy as np
from mutation import mutation

from bertjax.evals.held_out import labelled
from bertjax.train import setup

LENGTHS = (8, 8, 8, 8, 16, 16)  # of a batch each


class Lines:
  """Rows of one token each, two to a batch, in rows as long as LENGTHS says."""

  rows, together, ordered = 2 * len(LENGTHS), 2, False
  store = types.SimpleNamespace(special=dict(pad=0))

  def fewer(self, *_):
    return self

  def by_length(self):
    return np.arange(self.rows)

  def batch(self, row_n, shuffle, place_n=None):
    token_BT = np.zeros((len(row_n), LENGTHS[int(row_n[0]) // 2]), np.int32)
    token_BT[:, 0] = row_n
    dropped_B = np.zeros(len(row_n), np.int32)
    return dict(token_BT=token_BT, example_BT=np.ones_like(token_BT), dropped_B=dropped_B)


@mutation('    if shapes not in compiled:\n', '    if True:\n')
def test_an_evaluation_compiles_once_for_a_length_however_often_it_runs():
  compiled = []

  def compile_for(function, arguments, **_):
    compiled.append(arguments[1]['token_BT'].shape)
    return function

  devices = types.SimpleNamespace(compile=compile_for)
  subject = types.SimpleNamespace(
    compile=lambda function: setup._at_first_use(function, devices), put=lambda batch: batch,
    config=types.SimpleNamespace(total_steps=2, eval_steps=1), key='config.evals.dev',
    objective=types.SimpleNamespace(flops=None), template={},
  )  # fmt: skip
  run = labelled.outputs(subject, Lines(), lambda add, batch: batch['token_BT'][:, 0] + add)
  for add in (0, 100):
    assert list(run(add)) == list(range(add, add + Lines.rows))
  assert compiled == [(2, 8), (2, 16)]
