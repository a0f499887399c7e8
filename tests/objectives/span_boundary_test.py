"""SpanBERT against PyTorch: the encoder of `transformers`, and the boundary head written out."""

import cases
import numpy as np
import parity
import pytest
import state_dicts
import torch_models
from mutation import mutation
from slow_imports import torch

from bertjax.models.layers.basic import padded_rows
from bertjax.objectives import span_boundary

mutation("['pair_weight_BP'], scale, plus)", "['pair_weight_BP'], scale)")
mutation('head(left_BPD, right_BPD, ', 'head(right_BPD, left_BPD, ')
mutation('boundary_scale = gradient_scale * float', 'boundary_scale = float')

LENGTHS, LENGTH, SLOTS = (17, 32, 9), 32, 8


def config():
  c = cases.config('spanbert')
  c.objective.gradient_scale = 2.0
  return c


def batch():
  """Two targets a row outside any pair, and five in spans between two neighbours."""
  out = cases.batch([(n,) for n in LENGTHS], LENGTH, types=0, slots=SLOTS)
  shape = out['target_BP'].shape
  out |= {k: np.zeros(shape, np.int32) for k in ('left_BP', 'right_BP', 'offset_BP')}
  out['pair_weight_BP'] = np.zeros(shape, np.float32)
  for b, length in enumerate(LENGTHS):
    out['target_pos_BP'][b, :7] = [1, 2, 3, 4, 6, 7, length - 2]
    out['pair_weight_BP'][b, 1:6] = 1
    out['left_BP'][b, 1:6], out['right_BP'][b, 1:6] = [1, 1, 1, 5, 5], [5, 5, 5, 8, 8]
    out['offset_BP'][b, 1:6] = [0, 1, 2, 0, 1]
  return out


def boundary_head(model):
  """pair_bert.py: the boundary head, whose output layer is the word table."""

  class Boundary(torch.nn.Module):
    def __init__(self, m):
      super().__init__()
      self.position = torch.nn.Embedding(15, 200)
      self.dense1 = torch.nn.Linear(2 * m.width + 200, m.width)
      self.norm1 = torch.nn.LayerNorm(m.width, eps=1e-12)
      self.dense2 = torch.nn.Linear(m.width, m.width)
      self.norm2 = torch.nn.LayerNorm(m.width, eps=1e-12)
      self.bias = torch.nn.Parameter(torch.zeros(m.vocab_size))

    def forward(self, h_BTD, left_n, right_n, offset_n, row_n, table_VD):
      x = torch.cat([h_BTD[row_n, left_n], h_BTD[row_n, right_n], self.position(offset_n)], -1)
      x = self.norm1(torch.nn.functional.gelu(self.dense1(x)))
      x = self.norm2(torch.nn.functional.gelu(self.dense2(x)))
      return x @ table_VD.T + self.bias

  return Boundary(model)


@pytest.fixture(scope='module')
def both():
  """(config, batch, our params, torch loss terms, torch gradients in our layout)."""
  c, data = config(), batch()
  m = c.model
  bert = torch_models.like(
    m, 'BertForMaskedLM', type_vocab_size=2, layer_norm_eps=1e-12, hidden_act='gelu'
  )
  head = torch_models.loud(boundary_head(m))
  tensor = lambda key: torch.tensor(data[key]).long()
  row, slot = np.nonzero(data['weight_BP'])
  out = bert(tensor('token_BT'), attention_mask=tensor('example_BT'), output_hidden_states=True)
  cross_entropy = torch.nn.functional.cross_entropy
  at = tensor('target_pos_BP')[row, slot]
  mlm = cross_entropy(out.logits[row, at], tensor('target_BP')[row, slot])
  row, slot = np.nonzero(data['pair_weight_BP'])
  pick = lambda key: tensor(key)[row, slot]
  logits = head(
    out.hidden_states[-1], pick('left_BP'), pick('right_BP'), pick('offset_BP'), row,
    bert.bert.embeddings.word_embeddings.weight,
  )  # fmt: skip
  boundary = cross_entropy(logits, pick('target_BP'), reduction='sum')
  (2 * (mlm + boundary / (len(row) + 1))).backward()

  def ours(value):
    state = {k: value(v).numpy().copy() for k, v in bert.named_parameters()}
    plain = m.copy_and_resolve_references()
    plain.update(dict(name='bert', family='bert'))
    params = state_dicts.from_huggingface(state, plain)
    pad = padded_rows(cases.VOCAB) - cases.VOCAB
    dense = lambda layer: dict(
      kernel=value(layer.weight).numpy().T.copy(), bias=value(layer.bias).numpy().copy()
    )
    norm = lambda layer: dict(
      scale=value(layer.weight).numpy().copy(), bias=value(layer.bias).numpy().copy()
    )
    return params | dict(
      boundary=dict(
        position=value(head.position.weight).numpy().copy(),
        dense1=dense(head.dense1), norm1=norm(head.norm1),
        dense2=dense(head.dense2), norm2=norm(head.norm2),
        bias=np.pad(value(head.bias).numpy().copy(), (0, pad)),
      )
    )  # fmt: skip

  found = dict(mlm=mlm.item(), boundary=boundary.item() / len(row), targets=len(row))
  return c, data, ours(lambda p: p.detach()), found, ours(lambda p: p.grad)


def test_equals_pytorch(both):
  c, data, params, found, expected = both
  (loss, out), grads = parity.gradients_of(span_boundary.make(c), data)(params)
  mean = lambda name: float(out.terms[name].total / out.terms[name].weight)
  assert mean('mlm') == pytest.approx(found['mlm'], rel=parity.LOSS)
  assert mean('boundary') == pytest.approx(found['boundary'], rel=parity.LOSS)
  n = found['targets']
  total = 2 * (found['mlm'] + found['boundary'] * n / (n + 1))
  assert float(loss) == pytest.approx(total, rel=parity.LOSS)
  parity.close_gradients(grads, expected)
