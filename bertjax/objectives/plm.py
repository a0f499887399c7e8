"""Permutation language modelling: XLNet's pretraining (zihangdai/xlnet, function_builder.py).

sum(w nll) / sum(w) over the slots of all rows. What a slot sees is the corruption's to say
(`bertjax.data.masking.xlnet_permutation`), memory is the carry.
"""

import numpy as np

from bertjax import flops, registry
from bertjax.kernels.cross_entropy import logits
from bertjax.models.layers import memory as memory_lib
from bertjax.objectives import lm
from bertjax.types import Array, Batch, Objective


def seen_pairs(batch: Batch, memory: int) -> tuple[int, int]:
  """How many (query, key) pairs the content stream and the query stream see, in a host batch.

  Args:
    batch: with orders.
    memory: places that every row remembers.
  """
  order_q_BT, order_k_BT = (np.asarray(batch[f'order_{side}_BT']) for side in 'qk')
  real_BT = np.asarray(batch['example_BT']) > 0
  row_B1 = np.arange(len(real_BT))[:, None] * (4 * real_BT.shape[1])
  # Orders of one row lie above those of the rows before it; padding is above all queries.
  key_n = np.sort(np.where(real_BT, order_k_BT + 1, 3 * real_BT.shape[1]) + row_B1, None)
  before_B1 = np.arange(len(real_BT))[:, None] * real_BT.shape[1]
  seen_BT = np.searchsorted(key_n, order_q_BT + 1 + row_B1) - before_B1 + memory
  own_BT = order_q_BT <= order_k_BT
  row_S, slot_S = np.nonzero(batch['weight_BP'])
  query = seen_BT[row_S, np.asarray(batch['target_pos_BP'])[row_S, slot_S]]
  return int((seen_BT + own_BT)[real_BT].sum()), int(query.sum())


def make(config) -> Objective:
  """Builds the objective from a run's config; `config.objective` has its name alone."""
  model = registry.find('bertjax.models', config.model.name, 'config.model.name').make(config.model)

  def predict(variables, memory, batch: Batch, hidden: bool = False) -> dict[str, Array]:
    out = model.apply(variables, batch, memory_lib.before(memory, batch), None, hidden)
    return dict(out, logits_BPV=logits(out['word'])) if 'word' in out else out

  def step_flops(batch: Batch) -> float:
    real = float(np.sum(np.asarray(batch['example_BT']) > 0))
    predicted = float(np.sum(batch['weight_BP']))
    rows, length = np.shape(batch['example_BT'])
    square, ffn = model.width * model.width, 2 * model.width * model.ffn
    content, query = seen_pairs(batch, model.mem_len)
    each = flops.head_flops(real, 4 * square + ffn) + flops.head_flops(predicted, 2 * square + ffn)
    # No gradient reaches the memory or the position table, so their projections cost 4 each.
    far = 2 * (length + model.mem_len) if 'direction_B' in batch else 2 * length + model.mem_len
    each += flops.head_flops(rows * model.mem_len * 2 / 3, 2 * square)
    each += flops.head_flops(far * 2 / 3, square)
    each += 18.0 * model.width * (content + query)  # by content, by distance, and of values
    return model.layers * each + flops.head_flops(predicted, model.width * model.vocab_size)

  carry = lambda batch: memory_lib.empty(model, batch)
  return Objective(model.init, lm.mean_loss(model, 'plm'), predict, carry, step_flops)
