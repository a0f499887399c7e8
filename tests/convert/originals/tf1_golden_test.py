"""XLNet's own variables give XLNet's own numbers: see README.md beside the golden files."""

import json

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow_cases as originals
from mutation import mutation

from bertjax.convert.originals import tf1
from bertjax.objectives import plm

pytestmark = pytest.mark.full
NLL = 5e-6


def batch_of(found, k: int, both: bool) -> dict[str, np.ndarray]:
  """Batch k of a file; the originals put time first."""
  get = lambda name: found[f'batch_{k}/{name}']
  rows = get('inp_k').shape[1]
  batch = dict(
    token_BT=get('inp_k').T, type_BT=get('seg_id').T, example_BT=np.ones_like(get('inp_k').T),
    order_q_BT=get('order_query').T, order_k_BT=get('order_key').T, target_BP=get('target').T,
    target_pos_BP=get('target_mapping').argmax(1).T.astype(np.int32),
    weight_BP=get('target_mask').T.astype(np.float32), start_B=np.full(rows, k == 1, np.int32),
  )  # fmt: skip
  if both:
    batch['direction_B'] = np.where(np.arange(rows) < rows // 2, 1, -1).astype(np.int32)
  return batch


@pytest.mark.parametrize('name', ['bi_memory', 'odd_clamp', 'tied_bias'])
@mutation(
  'tf1: tied biases of XLNet are read as those of each layer',
  'bertjax/convert/originals/xlnet.py',
  "untie_r=len(shape(state, f'{NET}/r_w_bias')) == 3",
  'untie_r=True',
  case='tied_bias',
)
def test_the_numbers_of_xlnet(name, shared, tmp_path):
  file = shared / 'golden/originals' / f'xlnet_{name}.npz'
  if not file.is_file():
    pytest.skip(f'no {file}')
  found = dict(np.load(file))
  given = json.loads(str(found['config']))
  tensors = {n[6:]: x for n, x in found.items() if n.startswith('param/')}
  originals.write(tmp_path / 'model.ckpt', tensors)
  originals.describe(tmp_path, 'xlnet_config.json', ff_activation=given['ff_activation'])
  original = tf1.read(tmp_path, lambda row, shape: pytest.fail(row.theirs))
  assert original.model['untie_r'] == given['untie_r'] and not original.assumed

  c = cases.config('xlnet')
  c.model.update(original.model)
  lengths = dict(mem_len=given['mem_len'], reuse_len=given['reuse_len'])
  c.model.update(dict(lengths, clamp_len=max(given['clamp_len'], 0)))
  objective, params = plm.make(c), jax.tree.map(jnp.asarray, original.params)
  predict, memory = jax.jit(objective.predict), None
  for k in (1, 2, 3):
    batch = batch_of(found, k, given['bi_data'])
    memory = objective.carry(batch) if memory is None else memory
    out = predict(dict(params=params), memory, batch)
    memory, scores = out['memory'], jax.nn.log_softmax(out['logits_BPV'])
    nll = -np.take_along_axis(np.asarray(scores), batch['target_BP'][..., None], 2)[..., 0]
    used = batch['weight_BP'] > 0
    worst = np.abs(nll - found[f'batch_{k}/nll'].T)[used].max()
    assert worst <= NLL, f'nll of batch {k} is off by {worst:.1e}'
