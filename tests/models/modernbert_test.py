"""ModernBERT against PyTorch `transformers` (eager attention), and what it says of itself."""

import cases
import jax
import numpy as np
import parity
import pytest
import state_dicts
from flax.core import meta
from mutation import mutation
from slow_imports import torch, transformers

from bertjax.models import modernbert
from bertjax.models.layers.basic import padded_rows
from bertjax.objectives import mlm
from configs import modernbert as recipes

WINDOW = 4  # of 32 columns


def torch_model(c, std: float):
  m = c.model
  config = transformers.ModernBertConfig(
    vocab_size=m.vocab_size, hidden_size=m.width, num_hidden_layers=m.layers,
    num_attention_heads=m.heads, intermediate_size=m.ffn, local_attention=2 * m.window,
    global_attn_every_n_layers=m.global_every,
    rope_parameters=dict(
      full_attention=dict(rope_type='default', rope_theta=m.theta),
      sliding_attention=dict(rope_type='default', rope_theta=m.local_theta),
    ),
    pad_token_id=0, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3,
    attn_implementation='eager',
  )  # fmt: skip
  torch.manual_seed(0)
  model = transformers.ModernBertForMaskedLM(config).eval()
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      parameter.normal_(1.0 if 'norm' in name else 0.0, std)
  return model


def make_config(**model):
  # Heads of 12 and a layer over: neither a power of two nor a whole number of periods.
  odd = dict(layers=6, width=36, heads=3, ffn=52, window=WINDOW, theta=160_000.0)
  return cases.config('modernbert', **(odd | model))


def run_both(c, rows, std: float = 0.1):
  """Theirs one example at a time, so that nothing is packed; ours as the rows say."""
  model = torch_model(c, std)
  state = {k: v.detach().numpy().copy() for k, v in model.state_dict().items()}
  batch = cases.batch(rows, 32, types=1)
  params = state_dicts.from_huggingface(state, c.model)
  loss, weight, hidden, logits = 0.0, batch['weight_BP'].sum(), [], []
  for b, g in ((b, g) for b, row in enumerate(rows) for g in range(len(row))):
    columns = np.flatnonzero(batch['example_BT'][b] == g + 1)
    used = (batch['weight_BP'][b] > 0) & np.isin(batch['target_pos_BP'][b], columns)
    at = batch['target_pos_BP'][b][used] - columns[0]
    out = model(torch.tensor(batch['token_BT'][b, columns])[None].long(), output_hidden_states=True)
    target = torch.tensor(batch['target_BP'][b][used]).long()
    loss = loss + torch.nn.functional.cross_entropy(out.logits[0, at], target, reduction='sum')
    hidden.append(np.concatenate([h.detach().numpy() for h in out.hidden_states[1:]]))
    logits.append(out.logits[0, at].detach().numpy())
  (loss / weight).backward()
  grads = {k: p.grad.numpy() for k, p in model.named_parameters()}
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
  """Hidden states, logits, loss and every leaf's gradient; packed rows as if they were apart."""
  run_both(make_config(**model), rows)


@pytest.mark.parametrize('size', ['base', 'large'])
def test_parameters_are_as_many_as_theirs(size):
  c = recipes.get_config(size)
  c.model.vocab_size, m = 50_368, c.model
  with torch.device('meta'):
    config = transformers.ModernBertConfig(
      hidden_size=m.width, num_hidden_layers=m.layers, num_attention_heads=m.heads,
      intermediate_size=m.ffn,
    )  # fmt: skip
    theirs = transformers.ModernBertForMaskedLM(config).num_parameters()
  shapes = jax.eval_shape(mlm.make(c).init, jax.random.key(0), cases.batch([[8]], 8))
  ours = sum(int(np.prod(x.shape)) for x in jax.tree.leaves(meta.unbox(shapes)['params']))
  padding = padded_rows(m.vocab_size) - m.vocab_size
  assert ours - padding * (m.width + 1) == theirs


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


def test_heads_that_cannot_turn_are_refused():
  with pytest.raises(ValueError, match='even quotient'):
    modernbert.make(make_config(heads=4, width=36).model)
