"""A model's `flops` against its parameters, one by one, and against XLA's count of the step."""

import re

import jax
import numpy as np
import pytest
import systems
from flax.core import meta
from ml_collections import ConfigDict
from mutation import mutation
from tiers import in_tiers

from bertjax import registry
from bertjax.kernels.relative_attention.reference import visible
from bertjax.models import bigbird
from bertjax.models.layers import memory
from bertjax.models.layers.attend import example_mask, second_text
from bertjax.tools.bench.parts import own_step
from bertjax.tools.bench.parts.synthetic import synthetic_batch
from bertjax.train.step import trained_loss, with_rows
from bertjax.types import Context

NOTHING = r'(\w*embeddings/|boundary/)?(position|type|language)|layers/(u|w|z|segment)|[uw]'
LAYERS = r'(\w+/)?(encoder/)?(layers|shared)'

# Of each objective: which matrices meet which tokens, in FLOPs per entry.
RULES = {
  'mlm': {
    rf'{LAYERS}/(attention/\w+|ffn_(up|gate|down))/kernel': '6 real',
    r'embeddings/projection/kernel': '6 real',
    r'mlm/dense/kernel|(embeddings/)?word': '6 predicted',
    r'pooler/kernel|(next|order)/kernel': '6 examples',
  },
  'span_boundary': {
    rf'{LAYERS}/(attention/\w+|ffn_up|ffn_down)/kernel': '6 real',
    r'mlm/dense/kernel': '6 predicted',
    r'embeddings/word': '6 predicted + 6 spanned',
    r'boundary/dense[12]/kernel': '6 spanned',
  },
  'rtd': {
    rf'{LAYERS}/(attention/\w+|ffn_up|ffn_down)/kernel|\w+/projection/kernel': '6 real',
    r'rtd/(dense|out)/kernel': '6 real',
    r'mlm/dense/kernel': '6 predicted',
  },
  'deberta_v3': {
    rf'{LAYERS}/(attention/(value|out)|ffn_up|ffn_down)/kernel': '6 real',
    rf'{LAYERS}/attention/(query|key)/kernel': '6 real + 6 buckets',
    r'rtd/(dense|out)/kernel': '6 real',
    r'mlm/dense/kernel|word': '6 predicted',
    r'(\w+/position|generator_net/absolute|difference)': '',
  },
  'lm': {
    r'layers/attention/(query|out)/kernel|layers/ffn[/_](up|down)/kernel': '6 real',
    r'layers/attention/(key|value)/kernel': '6 real + 4 remembered',
    r'layers/attention/position/kernel': '4 distances',
    r'lstm_\d/(input|state)': '6 real',
    r'lstm_\d/state_bias': '',
    r'word': '6 predicted',
  },
  'seq2seq': {
    r'encoder/layers/(attention/\w+|ffn_(up|gate|down))/kernel': '6 real',
    r'decoder/layers/(attention/\w+|ffn_(up|gate|down))/kernel': '6 written',
    r'decoder/layers/cross_attention/(query|out)/kernel': '6 written',
    r'decoder/layers/cross_attention/(key|value)/kernel': '6 real',
    r'(encoder|decoder)_(bias/buckets|position)': '',
    r'word': '6 predicted',
  },
  'bilm': {
    r'forwards_\d/(input|state|projection)': '6 real',
    r'backwards_\d/(input|state|projection)': '6 written',
    r'spelled/characters': '',
    r'spelled/filter_\d': '6 real + 6 written',  # at all its places
    r'spelled/(carry_\d|transform_\d|projection)/kernel': '6 real + 6 written',
    r'softmax': '6 predicted',
  },
  'plm': {
    r'layers/attention/(query|out)/kernel|layers/ffn/(up|down)/kernel': '6 real + 6 predicted',
    r'layers/attention/(key|value)/kernel': '6 real + 4 remembered',
    r'layers/attention/position/kernel': '4 distances',
    r'word': '6 predicted',
  },
}


def made(name: str, objective=None, **fields):
  """(config, batch, objective) of a small system, by default its own objective."""
  config = systems.tiny(name)
  config.model.update(fields)
  config = own_step.sized(config, 4, 32)
  config.objective = objective or config.objective
  module = registry.find('bertjax.objectives', config.objective.name, 'config.objective.name')
  return config, dict(synthetic_batch(config)), module.OBJECTIVE.make(config)


def tokens(config, batch) -> dict[str, float]:
  """How many tokens, of which kind."""
  rows, length = batch['example_BT'].shape
  places = config.model.mem_len if 'mem_len' in config.model else 0
  ways = 2 if 'direction_B' in batch else 1
  # XLNet's table of distances reaches as far ahead as back.
  ahead = {'plm': length, 'lm': 0}.get(config.objective.name, 0)
  return dict(
    real=(batch['example_BT'] > 0).sum(),
    predicted=sum(
      (batch[key] > 0).sum() for key in ('weight_BP', 'weight_BT', 'weight_BU') if key in batch
    ),
    written=(batch.get('out_example_BU', np.zeros(1)) > 0).sum(),
    examples=batch.get('example_weight_BG', np.zeros(1)).sum(),
    spanned=batch.get('pair_weight_BP', np.zeros(1)).sum(),
    remembered=rows * places,
    buckets=2 * config.model.get('buckets', 0),
    distances=2 * (length + places) if ways == 2 else length + ahead + places,
  )


def matrices(objective, batch) -> dict[str, tuple[int, ...]]:
  """path -> shape of the parameters that are matrices, a stack of layers as it is."""
  shapes = meta.unbox(jax.eval_shape(objective.init, jax.random.key(0), batch))['params']
  leaves = jax.tree_util.tree_leaves_with_path(shapes)
  named = {'/'.join(key.key for key in path): leaf.shape for path, leaf in leaves}
  rank = lambda path: len(named[path]) - ('layers' in path.split('/'))
  return {path: s for path, s in named.items() if rank(path) > 1 and not path.endswith('/bias')}


def by_parameter(config, batch, objective) -> float:
  """FLOPs of the products with parameters; a matrix that no rule knows is an error."""
  count, total = tokens(config, batch), 0.0
  deberta = config.model.name == 'deberta_v3'
  rules = {NOTHING: ''} | RULES[config.model.name if deberta else config.objective.name]
  if (
    config.objective.name == 'rtd' and not deberta
  ):  # the tables that the generator reads are its output layer
    tied = config.model.tied_embeddings
    word, other = ('embeddings', 'generator_embeddings')[:: 1 if tied else -1]
    rules |= {f'{word}/word': '6 predicted', f'{other}/word': ''}
  for path, shape in matrices(objective, batch).items():
    found = [rule for pattern, rule in rules.items() if re.fullmatch(pattern, path)]
    assert len(found) == 1, f'{path}: {found}, say how many tokens it meets'
    size = float(np.prod(shape))
    if path.endswith(('word', 'softmax')):
      scored = config.objective.get('sampled', 0) or config.model.vocab_size
      size *= scored / shape[0]  # without the padding
    if path.startswith('spelled/filter'):
      size *= config.model.characters - shape[0] + 1
    if deberta and path.startswith('generator_net/layers'):
      size *= (shape[0] + 1) / shape[0]  # the last layer runs twice
    if path.startswith('encoder/shared'):
      size *= config.model.layers
    for term in filter(None, found[0].split(' + ')):
      factor, kind = term.split()
      total += size * int(factor) * float(count[kind])
  return total


def by_pairs(config, batch, model) -> float:
  """FLOPs of attention, from the masks that the kernels get."""
  kind, m = config.objective.name, config.model
  if m.name in ('elmo', 'awd_lstm'):  # there is no attention
    return 0.0
  sees = lambda mask: float(np.asarray(visible(mask)).sum())
  if kind == 'lm':
    full = model.carry(len(batch['example_BT']), 'zeros')
    mask = memory.causal(full, batch['example_BT'], None)
    if m.name == 'gpt':  # no products by distance
      return 12 * m.layers * m.width * sees(mask)
    return 18 * m.layers * m.heads * m.head_size * sees(mask)
  if kind == 'seq2seq':
    inner = m.heads * m.head_size if 'head_size' in m else m.width  # T5, BART
    context = second_text(batch, np.zeros((*batch['example_BT'].shape, 1)))
    masks = example_mask(batch, 'example'), context.mask, context.other_mask
    return 12 * m.layers * inner * sum(map(sees, masks))
  if kind == 'plm':
    order_BT, key_BT = batch['order_q_BT'], batch['order_k_BT']
    seen_BTT = order_BT[:, :, None] > key_BT[:, None]
    content = (seen_BTT | np.eye(order_BT.shape[1], dtype=bool)).sum()
    row_S, slot_S = np.nonzero(batch['weight_BP'])
    query = seen_BTT[row_S, batch['target_pos_BP'][row_S, slot_S]].sum()
    queries = order_BT.size + len(row_S)
    return 18 * m.layers * m.width * (content + query + queries * m.mem_len)
  mask = example_mask(batch, 'example').within(getattr(model, 'reach', None))
  if m.name == 'bigbird':
    length = batch['example_BT'].shape[1]
    last_B = (np.count_nonzero(batch['example_BT'], 1) - 1) // m.block
    plans = [bigbird.planned(x, last_B, m.random_blocks) for x in model.prefers(length)]
    plan_LBNIK = np.stack(plans)[..., None]
    sees_LBNbb = (plan_LBNIK == np.arange(plan_LBNIK.shape[-3])).any(-2)
    for row, last in enumerate(last_B):
      sees_LBNbb[:, row, :, [0, last]] = True
    sees_LBNTS = sees_LBNbb.repeat(m.block, 3).repeat(m.block, 4)[..., :length, :length]
    pairs = np.einsum('lbnts,bts->', sees_LBNTS, np.asarray(visible(mask)), dtype=np.float64)
    return 12 * m.width / m.heads * pairs
  if hasattr(model, 'kinds'):
    windows = [model.window + 1 if kind else None for kind in model.kinds]
    return 12 * m.width * sum(sees(mask.within(window)) for window in windows)
  pairs = sees(mask)
  if m.name == 'deberta_v3':  # two products by distance besides
    return 24 * (m.layers + round(m.layers * m.generator_layers) + 1) * m.width * pairs
  count = 12 * m.layers * m.width * pairs
  if kind == 'rtd':
    width, layers = m.width * m.generator_width, m.layers * m.generator_layers
    count += 12 * round(layers) * round(width) * pairs
  return count


@pytest.mark.parametrize('name', in_tiers(systems.NAMES, systems.SAME))
@mutation('else self.width * self.width', 'else 0')
@mutation('head_flops(real + read, 2', 'head_flops(real, 2', case='t5')
@mutation('- 12.0 * width * float(hidden)', '', case='bigbird')
@mutation('4 * cells * (inputs + cells)', '4 * cells * inputs', case='ulmfit')
@mutation('flops_lib.head_flops(rows * self.mem_len * 2 / 3, 2 * square)', '0')
def test_every_matrix_counts_at_the_tokens_that_it_meets(name):
  config, batch, objective = made(name)
  model = registry.find('bertjax.models', config.model.name, '').MODEL.make(config.model)
  expected = by_parameter(config, batch, objective) + by_pairs(config, batch, model)
  np.testing.assert_allclose(objective.flops(batch), expected, rtol=1e-12)


CLASSIFY = dict(name='classify', lm=0.5, smoothing=0.0, class_weights=())
SMALL = dict(layers=1, width=512, heads=8, ffn=2048, vocab_size=2048, dropout=0.0)
OF_MODEL = {
  'bert': {},
  'gpt': dict(objective=ConfigDict(CLASSIFY), labels=(('label', 2),)),
  'modernbert': dict(window=0),
  'spanbert': {},
  'electra': dict(generator_head=16, embedding_width=64),
  'deberta_v3': dict(generator_layers=1.0, generator_head=64, buckets=16, positions=32),
  'transformer_xl': dict(head_size=64, mem_len=16),
  'xlnet': dict(mem_len=16),
}


@pytest.mark.parametrize('name', in_tiers(OF_MODEL, {*OF_MODEL} - {'bert', 'gpt'}))
@mutation('(3 if gated else 2) * width', 'width')
@mutation('+ model.word_flops(float(np.sum(_goes_on(batch))))', '', case='gpt')
def test_equals_what_xla_counts_in_the_gradient(name):
  """One layer, since a scanned body counts once; full rows and slots, since XLA counts padding. XLA
  adds what is no product, and the pairs that a mask hides."""
  fields = SMALL | dict(attention_dropout=0.0) | OF_MODEL[name]
  _, batch, objective = made(name, **fields)
  for key in ('weight_BP', 'pair_weight_BP', 'example_BT'):
    if key in batch:
      batch[key] = np.ones_like(batch[key])
  if 'labels' in OF_MODEL[name]:  # of the one text of each row
    one_BG = np.ones((4, 1), np.int32)
    batch |= dict(first_BG=31 * one_BG, label_BG=one_BG, example_weight_BG=one_BG.astype(float))
  variables = meta.unbox(jax.eval_shape(objective.init, jax.random.key(0), batch))
  carry = jax.eval_shape(objective.carry, batch)

  def loss(params, carry, batch):
    ctx = Context(jax.random.key(0), 0, train=True)
    terms = objective.loss(dict(params=params), carry, with_rows(batch), ctx).terms
    return trained_loss(terms, {key: term.weight for key, term in terms.items()})

  compiled = jax.jit(jax.grad(loss)).lower(variables['params'], carry, batch).compile()
  share = objective.flops(batch) / compiled.cost_analysis()['flops']
  assert (0.94 if name == 'xlnet' else 0.95) < share <= 1.0  # its masks hide half of the pairs
