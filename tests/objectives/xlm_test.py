"""XLM and XLM-R against PyTorch `transformers`: masked, causal and translation steps."""

import cases
import jax
import numpy as np
import parity
import pytest
from flax.core import meta
from mutation import mutation
from slow_imports import torch, transformers
from tiers import in_tiers

from bertjax.config import sections
from bertjax.models.layers import pad_id, positions
from bertjax.objectives import mlm
from configs import xlm_r

LANGUAGES = 3


def model_of(config):
  """Takes what `parity.torch_run` gives, and the positions and languages of the batch."""

  class Torch(transformers.XLMWithLMHeadModel):
    def forward(self, token, attention_mask, token_type_ids, **keys):
      ids = lambda name: torch.tensor(self.batch[name], dtype=torch.long)
      langs = ids('language_BT') if self.config.n_langs > 1 else None
      return super().forward(
        token, attention_mask=attention_mask, position_ids=ids('position_BT'), langs=langs, **keys
      )

  return Torch(config)


def case(kind: str, languages: int = LANGUAGES, std: float = 0.1):
  """(config, state dict, batch, torch model) of a masked, causal or translation step."""
  torch.manual_seed(0)
  c = cases.config('xlm', attend='causal' if kind == 'clm' else 'example')
  c.model.extra = (('language', languages),) if languages > 1 else ()
  m = c.model
  model = model_of(
    transformers.XLMConfig(
      vocab_size=m.vocab_size, emb_dim=m.width, n_layers=m.layers, n_heads=m.heads,
      n_langs=languages, max_position_embeddings=m.positions, causal=kind == 'clm', pad_token_id=2,
      layer_norm_eps=m.norm_eps, gelu_activation=True, attn_implementation='eager',
    )
  ).eval()  # fmt: skip
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      parameter.normal_(float('norm' in name and name.endswith('weight')), std)
  batch = cases.batch([[n] for n in parity.LENGTHS], parity.LENGTH)
  batch['type_BT'][:] = 0
  real_BT, middle_B1 = batch['example_BT'], np.array([[8], [15], [4]])
  second_BT = (np.arange(parity.LENGTH) >= middle_B1) & (real_BT > 0)
  batch['language_BT'] = np.where(kind == 'tlm', second_BT + 1, 2 * real_BT).astype(np.int32)
  if kind == 'tlm':
    batch['position_BT'] = np.where(
      second_BT, batch['position_BT'] - middle_B1, batch['position_BT']
    )
  model.batch = batch
  state = {k: v.detach().numpy().copy() for k, v in model.state_dict().items()}
  return c, state, batch, model


@pytest.mark.parametrize('kind', in_tiers(['mlm', 'clm', 'tlm'], ['mlm', 'clm']))
def test_equals_transformers(kind):
  # A language that no token has gets no gradient, so every row is asked for its own.
  parity.compare(*case(kind))


def test_without_languages_equals_transformers():
  parity.compare(*case('mlm', languages=1))


def test_xlm_r_equals_its_class():
  """XLMRobertaForMaskedLM under the names of RoBERTa's table: they are the same."""
  torch.manual_seed(0)
  c = xlm_r.get_config('test')
  sections.complete(c)
  c.model.update(dict(vocab_size=cases.VOCAB, positions=66))
  pad_id.fill(c.model, 1)
  m = c.model
  hf = transformers.XLMRobertaConfig(
    vocab_size=m.vocab_size, hidden_size=m.width, num_hidden_layers=m.layers,
    num_attention_heads=m.heads, intermediate_size=m.ffn, max_position_embeddings=m.positions,
    type_vocab_size=m.types, layer_norm_eps=m.norm_eps, attn_implementation='eager',
  )  # fmt: skip
  model = transformers.XLMRobertaForMaskedLM(hf).eval()
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      parameter.normal_(float('norm' in name.lower() and name.endswith('weight')), 0.1)
  state = {k: v.detach().numpy().copy() for k, v in model.state_dict().items()}
  batch = cases.batch([[n] for n in parity.LENGTHS], parity.LENGTH, types=1)
  parity.compare(c, state, batch, model)


@mutation('** (np.arange(0, width, 2) / width)', '** (np.arange(1, width + 1, 2) / width)')
def test_sinusoids_are_those_of_the_original():
  """transformer.py:create_sinusoidal_embeddings, entry by entry."""
  ours = positions.sinusoids(np.arange(40), 12, in_turn=True)
  for position in range(40):
    for entry in range(12):
      angle = position / 10000 ** (2 * (entry // 2) / 12)
      expected = np.cos(angle) if entry % 2 else np.sin(angle)
      assert ours[position, entry] == pytest.approx(expected, abs=1e-6)


def params_of(c):
  batch = cases.batch([[8]], 8) | dict(language_BT=np.zeros((1, 8), np.int32))
  return jax.eval_shape(mlm.make(c).init, jax.random.key(0), batch), batch


@mutation('return init, init', 'return init, jax.nn.initializers.zeros')
def test_initial_values_are_those_of_the_original():
  """Tables N(0, 1/d), <pad> zero; torch's Linear elsewhere: U(+-1/sqrt(inputs)), biases too."""
  c = cases.config('xlm')
  c.model.extra, c.model.zero_row = (('language', 4),), 2  # XLM's <pad>
  _, batch = params_of(c)
  params = meta.unbox(jax.jit(mlm.make(c).init)(jax.random.key(0), batch))['params']
  word = np.asarray(params['embeddings']['word'])
  assert not word[2].any() and word[3].any()
  assert word[3 : c.model.vocab_size].std() == pytest.approx(64**-0.5, rel=0.03)
  layers = params['encoder']['layers']
  for path, inputs in (
    (layers['attention']['query'], 64),
    (layers['attention']['out'], 64),
    (layers['ffn_up'], 64),
    (layers['ffn_down'], 256),
    (dict(kernel=params['mlm']['bias'], bias=params['mlm']['bias']), 64),
  ):
    for leaf in (np.asarray(path['kernel']), np.asarray(path['bias'])):
      assert abs(leaf).max() <= inputs**-0.5
      assert leaf.std() == pytest.approx(inputs**-0.5 / 3**0.5, rel=0.12)
