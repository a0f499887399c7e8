"""The heads of fine-tuning against those of transformers: logits, loss and every gradient.

XLNet is padded on the left there, and ours on the right: it knows distances alone.
"""

import cases
import finetuned
import jax
import numpy as np
import parity
import pytest
from head_cases import (
  CASES,
  LABELS,
  LENGTH,
  LENGTHS,
  RIGHT,
  SPANS,
  TAGS,
  batch_of,
  config,
  labelled,
  theirs,
)
from ml_collections import ConfigDict
from mutation import mutation

from bertjax import models
from bertjax.errors import UserError
from bertjax.kernels.dropout import noise_from_key
from bertjax.objectives import classify, spans


@pytest.mark.parametrize(('family', 'head', 'pooling', 'lengths'), CASES)
@mutation('error_BG = jnp.square(logits', 'error_BG = jnp.abs(logits', case='bert-label-1')
@mutation('POOLERS[activation](dense(read_BGD))', 'dense(read_BGD)', case='bert-label-2')
@mutation('return POOLERS[activation]', 'return jnp.tanh', case='electra-label-3')
@mutation(
  "pooler_activation='relu'",
  "pooler_activation='tanh'",
  file='configs/distill/distilbert.py',
  case='distilbert-label-3',
)
@mutation(
  "of_BGT = (batch['example_BT'][:, None] == number_1G1)",
  "of_BGT = (batch['example_BT'][:, None] < 1 + number_1G1)",
  case='modernbert-label-mean',
)
@mutation('self, pool(x_BTD, batch, self.pooling)', 'self, x_BTD[:, :1]', case='xlnet-label-5')
@mutation(
  "pooler_activation='none'", "pooler_activation='tanh'", file='configs/xlm.py', case='xlm-label-5'
)
@mutation("[batch[f'{name}_BT']]", "[0 * batch[f'{name}_BT']]", case='xlm-label-5')
@mutation("right_BT, batch['tag_weight_BT']", 'right_BT, 0 * nll_BT + 1', case='bert-tags')
@mutation('noise, read_BGD, x_BTD if ', 'noise, read_BGD, embedded_BTD if ', case='bert-tags')
@mutation('nn.logsumexp(logits_BG, axis=1) - picked_B', 'nn.softplus(-picked_B)', case='bert-right')
@mutation(
  '  return Mask(example_BT, example_BT)\n',
  '  return Mask(jnp.minimum(example_BT, 1), jnp.minimum(example_BT, 1))\n',
  case='bert-right',
)
@mutation('jnp.mean(picked_B2, 1)', 'jnp.sum(picked_B2, 1)', case='bert-spans-whole')
@mutation('logits_BT2 = jnp.where(real_BT1, logits_BT2, NEVER)', 'del real_BT1', case='bert-spans')
def test_logits_loss_and_gradients_are_those_of_transformers(family, head, pooling, lengths):
  c = config(family, head, pooling)
  rows, length = [(n,) for n in lengths], LENGTH
  if head is RIGHT:
    rows, length = finetuned.CHOICES, 44
  batch = batch_of(family, rows, length)
  found, picked = theirs(family, head, c, batch, lengths)
  gradients, expected = finetuned.compared(head.objective.make(c), c, batch, found, picked)
  if family == 'xlnet':  # the query stream's, which nothing reads
    assert not any(np.any(each.pop('mask')) for each in (expected, gradients))
  if head is RIGHT or head is SPANS:
    finetuned.close_but_for_the_bias('right' if head is RIGHT else 'span', gradients, expected)
  else:
    parity.close_gradients(gradients, expected)


@pytest.mark.parametrize(
  ('head', 'term'), [(LABELS(2), 'label'), pytest.param(SPANS, 'span', marks=pytest.mark.full)]
)
def test_the_heads_input_is_dropped_in_training_alone(head, term):
  c, batch = config('bert', head), batch_of('bert', [(17,), (40,), (9,)], LENGTH)
  c.model.head_dropout = 0.5
  labelled(head, batch, LENGTHS)
  finetuned.check_dropout(head.objective.make(c), batch, term)


@mutation('pooler_dropout=True', 'pooler_dropout=False', file='configs/roberta.py')
def test_roberta_and_electra_drop_on_both_sides_of_the_dense_layer():
  families = dict(bert=False, distilbert=False, roberta=True, electra=True)
  for family, both in families.items():
    assert config(family, LABELS(2)).model.pooler_dropout == both, family


@pytest.mark.parametrize('both', [False, True])
@mutation('      if self.pooler_dropout:\n', '      if not self.pooler_dropout:\n')
def test_what_the_dense_layer_reads_is_dropped_where_that_is_said(both):
  """Then what it gives differs in training."""
  c = config('bert', LABELS(2))
  c.model.update(head_dropout=0.5, pooler_dropout=both)
  model, batch = models.build(c.model), cases.batch([(17,), (40,)], 40, types=3, label='label')
  batch['row_B'] = np.arange(2, dtype=np.int32)
  noise = noise_from_key(jax.random.key(0), batch['row_B'])
  variables = cases.variables(model.init, batch)
  apply = jax.jit(model.apply)
  dropped, whole = (apply(variables, batch, each)['pooled_BGD'] for each in (noise, None))
  assert (np.abs(dropped - whole).max() > 0.01) == both


@mutation('all(jnp.argmax(logits_BT2, 1) == ends_B2', 'any(jnp.argmax(logits_BT2, 1) == ends_B2')
@mutation(
  "weight_B = batch['example_weight_BG'][:, 0]",
  "weight_B = batch['example_weight_BG'][:, 0] * 0 + 1",
  file='bertjax/objectives/spans.py',
)
def test_both_ends_of_a_span_must_be_right_and_padding_changes_nothing():
  batch = batch_of('bert', [(9,), (12,), (12,)], 12)
  labelled(SPANS, batch, (9, 12, 12))
  batch['example_weight_BG'][2] = 0
  terms = lambda logits, batch: jax.tree.map(float, spans.span_terms(logits, batch))
  logits_BT2 = np.random.default_rng(0).normal(size=(3, 12, 2)).astype(np.float32)
  logits_BT2[0, 3, 0] = logits_BT2[0, 4, 1] = logits_BT2[1, 4, 0] = 9  # of the second one end
  found = terms(logits_BT2, batch)
  assert (found['span_accuracy'].total, found['span_accuracy'].weight) == (1, 2)
  longer = {k: np.pad(v, ((0, 0), (0, 4))) if k.endswith('_BT') else v for k, v in batch.items()}
  padded = np.pad(logits_BT2, ((0, 0), (0, 4), (0, 0)), constant_values=50)
  assert terms(padded, longer)['span'].total == pytest.approx(found['span'].total)


WORDS, NEXT = dict(words=True), dict(labels=(('next', 2),))


@pytest.mark.parametrize(
  ('family', 'head', 'fields', 'said'),
  [
    *(('bert', h, WORDS, r'config\.model\.words=False, got True') for h in (LABELS(2), TAGS)),
    *(('bert', h, WORDS, r'config\.model\.words=False, got True') for h in (RIGHT, SPANS)),
    (
      'bert',
      LABELS(2),
      dict(labels=()),
      r"config\.model\.labels=\(\('label', 0\),\) and .*, got \(\)",
    ),
    ('bert', LABELS(2), NEXT, 'expected config.model.labels'),
    ('bert', LABELS(2), dict(token_labels=(('tag', 2),)), r"token_labels=\(\), got .*'tag'"),
    ('bert', TAGS, dict(token_labels=()), r"config\.model\.token_labels=\(\('tag', 0\),\)"),
    ('bert', TAGS, NEXT, r"labels=\(\) and .*, got .*'next'"),
    ('bert', TAGS, dict(token_labels=(('tag', 0),)), "expected config.data.task.name='tags'"),
    ('bert', RIGHT, dict(labels=(('right', 2),)), r"config\.model\.labels=\(\('right', 1\),\)"),
    ('bert', RIGHT, dict(labels=(('label', 1),)), r'expected config\.model\.labels'),
    ('bert', SPANS, dict(token_labels=()), r"token_labels=\(\('span', 2\),\), got \(\) and \(\)"),
    ('bert', SPANS, dict(token_labels=(('span', 3),)), r"got \(\) and \(\('span', 3\),\)"),
    ('bert', SPANS, NEXT, r"labels=\(\) and .* got \(\('next', 2\),\)"),
    ('xlnet', LABELS(2), WORDS, 'XLNet has words or labels: expected config.model.words=F'),
    ('xlm', LABELS(2), dict(pooler=True), "pooler_activation='none' leaves the pooler out"),
  ],
)
@mutation('not (_are(of_texts, text) and _are(of_tokens, token))', 'not _are(of_tokens, token)')
@mutation('not (_are(of_texts, text) and _are(of_tokens, token))', 'not _are(of_texts, text)')
@mutation('all(most in (0, count) for', 'all(most >= 0 for')
def test_other_heads_are_refused(family, head, fields, said):
  c = config(family, head)
  c.model.update(ConfigDict(fields))
  with pytest.raises(UserError, match=said):
    head.objective.make(c)


@mutation("between = 0 if self.pooler_activation == 'none' else self.width", 'between = self.width')
def test_flops_leave_the_pooler_out():
  c, batch = config('xlm', LABELS(2)), batch_of('xlm', [(n,) for n in LENGTHS], LENGTH)
  width, flops = c.model.width, classify.make(c).flops(batch)
  c.model.pooler_activation = 'tanh'
  assert classify.make(c).flops(batch) - flops == 6 * len(LENGTHS) * width * width
