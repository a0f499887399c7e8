"""T5, GPT-2 and GPT-1 of PyTorch `transformers` as stacks of `Block`, texts packed into rows."""

import re
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta
from mutation import mutation

from bertjax.kernels.cross_entropy import logits
from bertjax.kernels.relative_attention import Mask, visible
from bertjax.models.layers.attend import example_mask, second_text
from bertjax.models.layers.basic import Norm, padded_rows, small_table, word_table
from bertjax.models.layers.block import Block, Context
from bertjax.models.layers.encoder import Encoder
from bertjax.models.layers.flops import attended_pairs, block_flops, cross_pairs, lstm_flops
from bertjax.models.layers.heads import WordHead
from bertjax.models.layers.positions import bias_table

VOCAB, WIDTH, HEADS, SIZE, FFN, LAYERS, POSITIONS = 101, 16, 3, 6, 20, 2, 40
# Lengths of the packed examples of each row, of the text and of the second text.
TEXTS, OUTS = ((7, 3), (30,)), ((3, 6), (35,))
INIT = jax.nn.initializers.normal(0.1)
FIELDS: dict[str, Any] = dict(
  heads=HEADS, ffn=FFN, dropout=0.1, attention_dropout=0.1, initializer=INIT, hidden=False
)


class T5(nn.Module):
  """Version 1.0, or 1.1 with gates and a table of its own for the output."""

  gated: bool

  @nn.compact
  def __call__(self, batch):
    word_VD = word_table(self, 'word', VOCAB, WIDTH, INIT)
    layer = FIELDS | dict(
      head_size=SIZE, scale=1.0, activation='gelu_tanh' if self.gated else 'relu',
      gated=self.gated, norm='rms_norm', norm_bias=False, norm_eps=1e-6, norm_place='before',
      attention_bias=False, ffn_bias=False,
    )  # fmt: skip
    norm = lambda name: Norm(1e-6, kind='rms_norm', bias=False, name=name)

    def bias(name, id_BT, causal):
      return bias_table(self, 'buckets', HEADS, id_BT.shape[1], INIT, causal, name)

    context = Context(example_mask(batch, 'example'), bias_NR=bias('far', batch['token_BT'], False))
    x_BTD, _ = Encoder(LAYERS, 'none', layer, name='encoder')(
      word_VD[batch['token_BT']], context, None
    )
    read_BTD = norm('encoder_norm')(x_BTD)
    context = second_text(batch, read_BTD, bias('past', batch['out_token_BU'], True))
    decoder = Encoder(LAYERS, 'none', layer | dict(cross=True), name='decoder')
    x_BUD, _ = decoder(word_VD[batch['out_token_BU']], context, None)
    x_BUD = norm('decoder_norm')(x_BUD)
    out_VD = word_table(self, 'out', VOCAB, WIDTH, INIT) if self.gated else word_VD
    factor = 1.0 if self.gated else WIDTH**-0.5
    head = WordHead(VOCAB, False, '', 0.0, INIT, word_bias=False, factor=factor, name='head')
    return logits(head(x_BUD, out_VD))


class GPT(nn.Module):
  """GPT-2, or GPT-1, whose norms stand after the sums."""

  before: bool

  @nn.compact
  def __call__(self, batch):
    word_VD = word_table(self, 'word', VOCAB, WIDTH, INIT)
    place_RD = small_table(self, 'position', 'position', (POSITIONS, WIDTH), INIT)
    layer = FIELDS | dict(
      heads=4, ffn=4 * WIDTH, activation='gelu_tanh', norm_eps=1e-5,
      norm_place='before' if self.before else 'after',
    )  # fmt: skip
    x_BTD = word_VD[batch['token_BT']] + place_RD[batch['position_BT']]
    context = Context(example_mask(batch, 'causal'))
    x_BTD, _ = Encoder(LAYERS, 'none', layer, name='decoder')(x_BTD, context, None)
    if self.before:
      x_BTD = Norm(1e-5, name='decoder_norm')(x_BTD)
    head = WordHead(VOCAB, False, '', 0.0, INIT, word_bias=False, name='head')
    return logits(head(x_BTD, word_VD))


def theirs(name: str):
  """(a random model of transformers, its arrays by name)."""
  import torch
  import transformers

  if name.startswith('t5'):
    config = transformers.T5Config(
      vocab_size=VOCAB, d_model=WIDTH, d_kv=SIZE, d_ff=FFN, num_layers=LAYERS, num_heads=HEADS,
      feed_forward_proj='gated-gelu' if name == 't5_v1.1' else 'relu',
      tie_word_embeddings=name == 't5_v1.0', decoder_start_token_id=0,
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config).eval()
    if name == 't5_v1.1':  # which transformers ties in any case
      model.lm_head.weight = torch.nn.Parameter(torch.zeros(VOCAB, WIDTH))
  else:
    kind = dict(gpt2='GPT2', gpt1='OpenAIGPT')[name]
    config = getattr(transformers, f'{kind}Config')(
      vocab_size=VOCAB, n_positions=POSITIONS, n_embd=WIDTH, n_layer=LAYERS, n_head=4
    )
    model = getattr(transformers, f'{kind}LMHeadModel')(config).eval()
  torch.manual_seed(0)
  with torch.no_grad():
    for key, parameter in model.named_parameters():
      parameter.normal_(1.0 if re.search(r'norm|ln_.*weight', key) else 0.0, 0.3)
  return model, {k: v.detach().numpy() for k, v in model.named_parameters()}


def t5_name(path: list[str], number: int) -> str:
  """The name in transformers' T5 of one of our parameters, of a layer's for layer `number`."""
  if 'layers' not in path:
    names = dict(word='shared', out='lm_head')
    bias = 'block.0.layer.0.SelfAttention.relative_attention_bias'
    names |= dict(far=f'encoder.{bias}', past=f'decoder.{bias}')
    return names.get(path[0], f'{path[0].removesuffix("_norm")}.final_layer_norm') + '.weight'
  stack, _, module, part = path[:4]
  places = dict(attention='0', cross_attention='1', ffn='2' if stack == 'decoder' else '1')
  kinds = dict(attention='SelfAttention', cross_attention='EncDecAttention')
  if module.endswith('_norm'):
    inner = f'{places[module.removesuffix("_norm")]}.layer_norm'
  elif module in kinds:
    inner = f'{places[module]}.{kinds[module]}.{part[0]}'
  else:
    inner = f'{places["ffn"]}.DenseReluDense.{module}'
  return f'{stack}.block.{number}.layer.{inner}.weight'


def gpt_name(path: list[str], number: int) -> str:
  """The same of GPT; queries, keys and values are one matrix there."""
  names = dict(
    attention='attn.c_attn', attention_norm='ln_1', ffn_norm='ln_2', ffn_up='mlp.c_fc',
    ffn_down='mlp.c_proj', word='wte', position='wpe', decoder_norm='ln_f',
  )  # fmt: skip
  name = names[path[2] if 'layers' in path else path[0]]
  name = 'attn.c_proj' if 'out' in path else name
  layer = f'h.{number}.' if 'layers' in path else ''
  return f'transformer.{layer}{name}.{"bias" if path[-1] == "bias" else "weight"}'


def params_of(name: str, shapes, state):
  """Their arrays in our shapes: padded words, stacked layers, kernels as [inputs, outputs]."""
  t5 = name.startswith('t5')
  alike = {'wi_0': 'ffn_up', 'wi_1': 'ffn_gate', 'wi': 'ffn_up', 'wo': 'ffn_down'}
  alias = {'wte': 'tokens_embed', 'wpe': 'positions_embed'} if name == 'gpt1' else {}
  found = {}
  for key, x in state.items():
    for old, new in (alike | {v: k for k, v in alias.items()}).items():
      key = key.replace(f'.{old}.', f'.{new}.')
    found[key] = x

  def one(path: list[str], number: int, shape) -> np.ndarray:
    x = found[(t5_name if t5 else gpt_name)(path, number)]
    if not t5 and 'attention' in path and 'out' not in path:
      x = np.split(x, 3, -1)[('query', 'key', 'value').index(path[3])]
    if path[0] in ('word', 'out'):
      return np.pad(x, ((0, padded_rows(VOCAB) - VOCAB), (0, 0)))
    return (x.T if t5 and path[-1] == 'kernel' else x).reshape(shape)

  def leaf(keys, like):
    path = [key.key for key in keys]
    if 'layers' not in path:
      return one(path, 0, like.shape)
    return np.stack([one(path, number, like.shape[1:]) for number in range(LAYERS)])

  return jax.tree_util.tree_map_with_path(leaf, shapes)


def packed(lengths, columns: int, seed: int):
  """Rows of packed examples, token, example and position of each column; the rest is padding."""
  token, example, position = (np.zeros((len(lengths), columns), np.int32) for _ in range(3))
  rng = np.random.default_rng(seed)
  for row, counts in enumerate(lengths):
    at = 0
    for number, count in enumerate(counts, 1):
      here = row, slice(at, at := at + count)
      token[here], example[here] = rng.integers(1, VOCAB, count), number
      token[here[0], at - count] = 0  # as a decoder begins, and real all the same
      position[here] = np.arange(count)
  return token, example, position


@pytest.mark.parametrize('name', ['t5_v1.0', 't5_v1.1', 'gpt2', 'gpt1'])
@mutation(
  'relative or Relative(), scale=self.scale)', 'relative or Relative(), scale=None)', case='t5_v1.0'
)
@mutation(
  'Mask(mine_BU, theirs_BT)',
  'Mask((mine_BU > 0).astype(int), (theirs_BT > 0).astype(int))',
  case='t5_v1.0',
)
@mutation('FURTHEST, not causal)', 'FURTHEST, True)', case='t5_v1.1')
@mutation('h_BPD * self.factor', 'h_BPD', case='t5_v1.0')
def test_equals_transformers(name):
  import torch

  model, state = theirs(name)
  token_BT, example_BT, position_BT = packed(TEXTS, 32, 0)
  batch = dict(token_BT=token_BT, example_BT=example_BT, position_BT=position_BT)
  if name.startswith('t5'):
    batch['out_token_BU'], batch['out_example_BU'], _ = packed(OUTS, 40, 1)
  ours = T5(name == 't5_v1.1') if name.startswith('t5') else GPT(name == 'gpt2')
  shapes = meta.unbox(jax.eval_shape(ours.init, jax.random.key(0), batch))['params']
  params = params_of(name, shapes, state)
  found = np.asarray(jax.jit(ours.apply)({'params': params}, batch))[..., :VOCAB]
  for row, number in ((0, 1), (0, 2), (1, 1)):
    of = lambda key, example, row=row, number=number: torch.tensor(
      batch[key][row][batch[example][row] == number][None].astype(np.int64)
    )
    inputs, seen = dict(input_ids=of('token_BT', 'example_BT')), 'example_BT'
    if name.startswith('t5'):
      inputs['decoder_input_ids'], seen = of('out_token_BU', 'out_example_BU'), 'out_example_BU'
    with torch.no_grad():
      want = model(**inputs).logits[0].numpy()
    np.testing.assert_allclose(found[row][batch[seen][row] == number], want, atol=2e-5, rtol=1e-5)


def counted(function, *args) -> float:
  """FLOPs of the gradients of all arguments, as XLA counts them."""
  grad = jax.grad(lambda *args: jnp.sum(function(*args) ** 2), tuple(range(len(args))))
  analysis: Any = jax.jit(grad).lower(*args).compile().cost_analysis()
  return analysis['flops']


@pytest.mark.parametrize('gated', [False, True])
@mutation('head_flops(real + read, 2', 'head_flops(real, 2')
def test_flops_of_a_decoder_are_those_that_xla_counts(gated):
  rows, columns, read, width, ffn, inner = 4, 64, 96, 128, 512, 192
  block = Block(
    **FIELDS | dict(heads=3, head_size=64, ffn=ffn), cross=True, gated=gated, scale=1.0,
    activation='relu', norm='rms_norm', norm_eps=1e-6, norm_place='before',
  )  # fmt: skip
  batch = dict(out_example_BU=np.ones((rows, columns), int), example_BT=np.ones((rows, read), int))
  x_BUD, read_BSD = jnp.zeros((rows, columns, width)), jnp.zeros((rows, read, width))
  run = lambda params, x_BUD, read_BSD: block.apply(
    {'params': params}, x_BUD, second_text(batch, read_BSD), None, None, jnp.int32(0)
  )[0]
  context = second_text(batch, read_BSD)
  shapes = jax.eval_shape(block.init, jax.random.key(0), x_BUD, context, None, None, jnp.int32(0))
  params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), meta.unbox(shapes)['params'])
  ours = block_flops(
    batch['out_example_BU'], width, ffn, inner=inner, gated=gated, causal=True,
    other_BS=batch['example_BT'],
  )  # fmt: skip
  hidden = 12 * inner * rows * columns * (columns - 1) / 2  # pairs that XLA computes all the same
  assert 0.95 < (ours + hidden) / counted(run, params, x_BUD, read_BSD) <= 1


@mutation('4 * width * (inputs + width)', '4 * width * inputs')
def test_flops_of_a_cell_are_those_that_xla_counts():
  cell, rows, width = nn.OptimizedLSTMCell(128), 64, 128
  x_BD = jnp.zeros((rows, 96))
  carry = (jnp.zeros((rows, width)), jnp.zeros((rows, width)))
  params = cell.init(jax.random.key(0), carry, x_BD)
  run = lambda params, carry, x_BD: cell.apply(params, carry, x_BD)[1]
  assert 0.95 < lstm_flops(rows, 96, width) / counted(run, params, carry, x_BD) <= 1


def test_pairs_of_two_texts_are_those_of_equal_examples():
  example_BU, example_BT = packed(OUTS, 40, 1)[1], packed(TEXTS, 32, 0)[1]
  assert cross_pairs(example_BU, example_BT) == 3 * 7 + 6 * 3 + 35 * 30
  mask = Mask(example_BU, example_BU, causal=True)
  assert attended_pairs(example_BU, causal=True) == visible(mask).sum()
