"""ModernBERT against PyTorch `transformers` (eager attention), and what it says of itself."""

import cases
import jax
import numpy as np
import parity
import pytest
import state_dicts
import torch_models
from flax.core import meta
from mutation import mutation
from slow_imports import torch

from bertjax.objectives import mlm

WINDOW = 4  # of 32 columns


def make_config(**model):
  # Heads of 12 and a layer over: neither a power of two nor a whole number of periods.
  odd = dict(layers=6, width=36, heads=3, ffn=52, window=WINDOW, theta=160_000.0)
  return cases.config('modernbert', **(odd | model))


@pytest.mark.parametrize(
  'rows, model',
  [
    ([[17, 15], [9, 6, 11]], {}),
    pytest.param([[17], [32], [9]], {}, marks=pytest.mark.full),
    pytest.param([[32]], dict(layers=5, remat='full'), marks=pytest.mark.full),
    pytest.param([[32]], dict(global_every=1), marks=pytest.mark.full),
    pytest.param([[20, 5]], dict(global_every=2, layers=3), marks=pytest.mark.full),
  ],
  ids=str,
)
@mutation('(self.local_theta, self.window + 1))', '(self.local_theta, self.window + 2))')
@mutation('(self.local_theta, self.window + 1))', '(self.theta, self.window + 1))')
@mutation(
  "rotary(batch['position_BT'],",
  "rotary(jax.lax.broadcasted_iota('int32', batch['position_BT'].shape, 1) * 2,",
)
@mutation('number + i, self.kinds[lead + i])', 'number + i, self.kinds[i])')
@mutation(
  'first, second = jnp.split(x_BTNH.astype(jnp.float32), 2, -1)',
  'x = x_BTNH.astype(jnp.float32)\n  first, second = x[..., ::2], x[..., 1::2]',
)
@mutation('normed_stream=True', 'normed_stream=False')
def test_equals_transformers(rows, model):
  """Hidden states, logits, loss and every leaf's gradient. Theirs gets one example at a time."""
  c = make_config(**model)
  net = torch_models.like(c.model, 'ModernBertForMaskedLM')
  batch = cases.batch(rows, 32, types=1)
  params = state_dicts.from_huggingface(torch_models.state_of(net), c.model)
  loss, weight, hidden, logits = 0.0, batch['weight_BP'].sum(), [], []
  for b, g in ((b, g) for b, row in enumerate(rows) for g in range(len(row))):
    columns = np.flatnonzero(batch['example_BT'][b] == g + 1)
    used = (batch['weight_BP'][b] > 0) & np.isin(batch['target_pos_BP'][b], columns)
    at = batch['target_pos_BP'][b][used] - columns[0]
    out = net(torch.tensor(batch['token_BT'][b, columns])[None].long(), output_hidden_states=True)
    target = torch.tensor(batch['target_BP'][b][used]).long()
    loss = loss + torch.nn.functional.cross_entropy(out.logits[0, at], target, reduction='sum')
    hidden.append(np.concatenate([h.detach().numpy() for h in out.hidden_states[1:]]))
    logits.append(out.logits[0, at].detach().numpy())
  (loss / weight).backward()
  grads = {k: p.grad.numpy() for k, p in net.named_parameters()}
  ours, our_loss, our_grads = parity.our_run(c, params, batch)
  real_BT, used_BP = batch['example_BT'] > 0, batch['weight_BP'] > 0
  parity.close(
    np.asarray(ours['hidden_LBTD'])[:, real_BT], np.concatenate(hidden, 1), parity.HIDDEN, 'hidden'
  )
  parity.close(
    np.asarray(ours['logits_BPV'])[used_BP][:, : cases.VOCAB], np.concatenate(logits),
    parity.LOGITS, 'logits',
  )  # fmt: skip
  assert our_loss == pytest.approx(loss.item() / weight, rel=parity.LOSS)
  parity.close_gradients(our_grads, state_dicts.from_huggingface(grads, c.model))


@mutation('return self.init_std / (2 * self.layers) ** 0.5', 'return self.init_std')
def test_initial_values_are_those_of_the_original():
  c = make_config(layers=8, width=96, ffn=128)
  batch = cases.batch([[8]], 8)
  params = meta.unbox(jax.jit(mlm.make(c).init)(jax.random.key(0), batch))['params']
  layers = params['encoder']['layers']
  for leaf, std in (
    (params['word'][: c.model.vocab_size], 0.02),
    (layers['attention']['query']['kernel'], 0.02),
    (layers['ffn_gate']['kernel'], 0.02),
    (layers['attention']['out']['kernel'], 0.005),
    (layers['ffn_down']['kernel'], 0.005),
    (params['mlm']['dense']['kernel'], 0.005),
  ):
    # Cut at 3: the standard deviation is .987 of the argument.
    assert float(leaf.std()) == pytest.approx(0.987 * std, rel=0.03)
    assert 2.5 * std < float(abs(leaf).max()) <= 3 * std
