"""The head for spans against that of transformers: logits, loss and every gradient."""

import cases
import finetuned
import jax
import numpy as np
import parity
import pytest
import state_dicts
from mutation import mutation

from bertjax.errors import UserError
from bertjax.objectives import spans

# Family -> the class of transformers; those of XLM-R are RoBERTa's under another name.
FAMILIES = dict(
  bert='BertForQuestionAnswering',
  ernie='ErnieForQuestionAnswering',
  roberta='RobertaForQuestionAnswering',
  albert='AlbertForQuestionAnswering',
  electra='ElectraForQuestionAnswering',
  modernbert='ModernBertForQuestionAnswering',
  distilbert='DistilBertForQuestionAnswering',
)


def config(family='bert'):
  return finetuned.config(family, labels=(), token_labels=(('span', 2),))


def batch_of(lengths, length):
  batch = cases.batch([(count,) for count in lengths], length, types=3)
  batch['span_start_BG'] = np.array([[count // 3] for count in lengths], np.int32)
  batch['span_end_BG'] = np.array([[count // 2] for count in lengths], np.int32)
  return batch


def theirs(family, c, batch):
  model = finetuned.random_model(FAMILIES[family], c)
  long = lambda x: np.asarray(x, np.int64)
  return finetuned.run_spans(
    model, long(batch['span_start_BG'][:, 0]), long(batch['span_end_BG'][:, 0]),
    input_ids=long(batch['token_BT']), attention_mask=long(batch['example_BT'] > 0),
    token_type_ids=long(batch['type_BT']),
  )  # fmt: skip


@pytest.mark.parametrize('lengths', [(40, 40, 40), (17, 40, 9)], ids=['whole', 'padded'])
@pytest.mark.parametrize(
  'family',
  [
    'bert',
    *(pytest.param(name, marks=pytest.mark.full) for name in FAMILIES if name != 'bert'),
  ],
)
@mutation(
  'spans: the loss is the sum of both ends',
  'bertjax/objectives/spans.py',
  'jnp.mean(picked_B2, 1)',
  'jnp.sum(picked_B2, 1)',
  case='bert-whole',
)
@mutation(
  'spans: padding takes part in the softmax',
  'bertjax/objectives/spans.py',
  'logits_BT2 = jnp.where(real_BT1, logits_BT2, NEVER)',
  'del real_BT1',
  case='bert-padded',
)
def test_logits_loss_and_gradients_are_those_of_transformers(family, lengths):
  c = config(family)
  batch = batch_of(lengths, 40)
  state, their_loss, their_logits, their_gradients = theirs(family, c, batch)
  params = state_dicts.from_huggingface(state, c.model)
  objective = spans.make(c)
  loss, gradients = parity.loss_and_gradients(objective, params, batch)
  logits = jax.jit(objective.predict)(dict(params=params), (), batch)['token_label_BTC']['span']
  real_BT = batch['example_BT'] > 0
  parity.close(np.asarray(logits)[real_BT], their_logits[real_BT], parity.LOGITS, 'logits')
  assert abs(loss - their_loss) <= parity.LOSS * their_loss
  expected = state_dicts.from_huggingface(their_gradients, c.model)
  finetuned.close_but_for_the_bias('span', gradients, expected)


def terms(logits_BT2, batch):
  return jax.tree.map(float, spans.span_terms(logits_BT2, batch))


@mutation(
  'spans: one end is enough',
  'bertjax/objectives/spans.py',
  'jnp.all(jnp.argmax(logits_BT2, 1) == ends_B2, 1)',
  'jnp.any(jnp.argmax(logits_BT2, 1) == ends_B2, 1)',
)
@mutation(
  'spans: rows that fill up a batch count',
  'bertjax/objectives/spans.py',
  "weight_B = batch['example_weight_BG'][:, 0]",
  "weight_B = batch['example_weight_BG'][:, 0] * 0 + 1",
)
def test_both_ends_must_be_right_and_padding_changes_nothing():
  batch = batch_of((9, 12, 12), 12)
  batch['example_weight_BG'][2] = 0
  logits_BT2 = np.random.default_rng(0).normal(size=(3, 12, 2)).astype(np.float32)
  logits_BT2[0, 3, 0] = logits_BT2[0, 4, 1] = logits_BT2[1, 4, 0] = 9  # of the second one end
  found = terms(logits_BT2, batch)
  assert (found['span_accuracy'].total, found['span_accuracy'].weight) == (1, 2)
  longer = {k: np.pad(v, ((0, 0), (0, 4))) if k.endswith('_BT') else v for k, v in batch.items()}
  padded = np.pad(logits_BT2, ((0, 0), (0, 4), (0, 0)), constant_values=50)
  assert terms(padded, longer)['span'].total == pytest.approx(found['span'].total)


@pytest.mark.full
def test_the_heads_input_is_dropped_where_asked():
  c = config()
  c.model.head_dropout = 0.5
  finetuned.check_dropout(spans.make(c), batch_of((17, 40), 40), 'span')


@pytest.mark.parametrize(
  ('fields', 'said'),
  [
    (dict(words=True), r'config\.model\.words=False, got True'),
    (dict(token_labels=()), r"token_labels=\(\('span', 2\),\), got \(\) and \(\)"),
    (dict(token_labels=(('span', 3),)), r"got \(\) and \(\('span', 3\),\)"),
    (dict(labels=(('next', 2),)), r"labels=\(\) and .* got \(\('next', 2\),\)"),
  ],
)
def test_other_heads_are_refused(fields, said):
  c = config()
  c.model.update(fields)
  with pytest.raises(UserError, match=said):
    spans.make(c)
