"""XLNet's own variables give XLNet's own numbers: see README.md beside the golden files."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import original_goldens as goldens
import original_reading
import pytest
import tensorflow_cases as originals
from mutation import mutation

from bertjax.formats.originals import tf1
from bertjax.objectives import plm
from bertjax.train.step import with_rows
from bertjax.types import Context

pytestmark = pytest.mark.full


def batch_of(file: goldens.Golden, k: int) -> dict[str, np.ndarray]:
  """Batch k of a file; the originals put time first."""
  get = lambda name: file.found[f'batch_{k}/{name}']
  rows = get('inp_k').shape[1]
  batch = dict(
    token_BT=get('inp_k').T, type_BT=get('seg_id').T, example_BT=np.ones_like(get('inp_k').T),
    order_q_BT=get('order_query').T, order_k_BT=get('order_key').T, target_BP=get('target').T,
    target_pos_BP=get('target_mapping').argmax(1).T.astype(np.int32),
    weight_BP=get('target_mask').T.astype(np.float32), start_B=np.full(rows, k == 1, np.int32),
  )  # fmt: skip
  if file.given['bi_data']:
    batch['direction_B'] = np.where(np.arange(rows) < rows // 2, 1, -1).astype(np.int32)
  return batch


def read(path, file: goldens.Golden, prefix: str):
  """What stands under a prefix, parameters or gradients, read as a checkpoint."""
  path.mkdir()
  originals.write(path / 'model.ckpt', file.tree(prefix))
  activation = file.given['ff_activation']
  originals.describe(path, 'xlnet_config.json', ff_activation=activation)
  return original_reading.read(tf1, path)


@pytest.mark.parametrize('name', ['bi_memory', 'odd_clamp', 'tied_bias'])
@mutation("not row.axes.startswith('L')", 'True', case='odd_clamp')
@mutation("u='r_w_bias', w='r_r_bias'", "w='r_w_bias', u='r_r_bias'", case='odd_clamp')
@mutation("untie_r=len(shape(state, f'{NET}/r_w_bias')) == 3", 'untie_r=True', case='tied_bias')
@mutation(
  "direction_B = batch.get('direction_B')",
  "direction_B = abs(batch['direction_B']) if 'direction_B' in batch else None",
  case='bi_memory',
)
def test_the_numbers_of_xlnet(name, shared, tmp_path):
  """The loss of every slot and batch, the memory each leaves, and the last one's gradients."""
  file = goldens.load(shared, f'xlnet_{name}')
  given, original = file.given, read(tmp_path / 'param', file, 'param')
  assert original.model['untie_r'] == given['untie_r'] and not original.assumed
  c = cases.config('xlnet')
  c.model.update(original.model)
  c.objective.memory = 'empty'  # the file's first batch has none
  lengths = dict(mem_len=given['mem_len'], reuse_len=given['reuse_len'])
  c.model.update(dict(lengths, clamp_len=max(given['clamp_len'], 0)))
  objective, params = plm.make(c), jax.tree.map(jnp.asarray, original.params)
  ctx = Context(jax.random.key(0), np.int32(0), train=False)

  @jax.jit
  def step(params, memory, batch):
    def loss(params):
      out = objective.loss(dict(params=params), memory, with_rows(batch), ctx)
      return out.terms['plm'].total / out.terms['plm'].weight, out.carry

    scores = objective.predict(dict(params=params), memory, batch)['logits_BPV']
    return jax.nn.log_softmax(scores), jax.value_and_grad(loss, has_aux=True)(params)

  memory, grads = objective.carry(batch_of(file, 1)), None
  for k in (1, 2, 3):
    batch, get = batch_of(file, k), lambda name, k=k: file.found[f'batch_{k}/{name}']
    log_p_BPV, ((loss, memory), grads) = step(params, memory, batch)
    nll_BP = -np.take_along_axis(np.asarray(log_p_BPV), batch['target_BP'][..., None], 2)[..., 0]
    goldens.near((nll_BP * batch['weight_BP']).T, get('nll'), goldens.NLL, f'nll of batch {k}')
    goldens.near(loss, get('loss'), goldens.NLL, f'loss of batch {k}')
    # The original's memory grows to its length, ours says which of its places are filled.
    left_LMBD = get('new_memory')
    filled = left_LMBD.shape[1]
    example_BM, ours_LMBD = memory.example_BM, np.asarray(memory.hidden_BLMD).transpose(1, 2, 0, 3)
    assert np.all(example_BM[:, -filled:] > 0) and not np.any(example_BM[:, :-filled])
    goldens.near(ours_LMBD[:, -filled:], left_LMBD, goldens.HIDDEN, f'memory of batch {k}')
  wanted = read(tmp_path / 'gradients', file, 'grad_batch_3').params
  goldens.near_gradients(grads, wanted, 'batch 3')
