"""The head for tags against that of transformers: logits, loss and every gradient."""

import cases
import finetuned
import jax
import numpy as np
import parity
import pytest
import state_dicts
from mutation import mutation

from bertjax.errors import UserError
from bertjax.objectives import tag

CLASSES = 5
# Family -> the class of transformers; those of XLM-R are RoBERTa's under another name.
FAMILIES = dict(
  bert='BertForTokenClassification',
  ernie='ErnieForTokenClassification',
  roberta='RobertaForTokenClassification',
  albert='AlbertForTokenClassification',
  electra='ElectraForTokenClassification',
  modernbert='ModernBertForTokenClassification',
  distilbert='DistilBertForTokenClassification',
)
FULL = ('ernie', 'roberta', 'albert', 'distilbert')


def config(family='bert'):
  return finetuned.config(family, labels=(), token_labels=(('tag', CLASSES),))


@pytest.mark.parametrize(
  'family',
  [
    *('bert', 'electra', 'modernbert'),
    *(pytest.param(name, marks=pytest.mark.full) for name in FULL),
  ],
)
@mutation(
  'tag: the mean is over all tokens',
  'bertjax/objectives/tag.py',
  'TAG: Term(jnp.sum(weight_BT * nll_BT), jnp.sum(weight_BT), scale=1.0)',
  'TAG: Term(jnp.sum(weight_BT * nll_BT), jnp.sum(jnp.ones_like(weight_BT)), scale=1.0)',
  case='bert',
)
@mutation(
  'tag: the head reads what enters the encoder',
  'bertjax/models/bert.py',
  'noise, read_BGD, x_BTD if self.token_labels else None',
  'noise, read_BGD, embedded_BTD if self.token_labels else None',
  case='bert',
)
def test_logits_loss_and_gradients_are_those_of_transformers(family):
  c, batch = config(family), cases.batch([(17,), (40,), (9,)], 40, types=3)
  labels = finetuned.tagged(batch, CLASSES)
  model = finetuned.random_model(FAMILIES[family], c, num_labels=CLASSES)
  state, their_loss, their_logits, their_gradients = finetuned.run(
    model, input_ids=batch['token_BT'], attention_mask=batch['example_BT'],
    token_type_ids=batch['type_BT'], labels=labels,
  )  # fmt: skip
  params = state_dicts.from_huggingface(state, c.model)
  objective = tag.make(c)
  loss, gradients = parity.loss_and_gradients(objective, params, batch)
  logits = jax.jit(objective.predict)(dict(params=params), (), batch)['token_label_BTC']['tag']
  real_BT = batch['example_BT'] > 0
  parity.close(np.asarray(logits)[real_BT], their_logits[real_BT], parity.LOGITS, 'logits')
  assert abs(loss - their_loss) <= parity.LOSS * their_loss
  parity.close_gradients(gradients, state_dicts.from_huggingface(their_gradients, c.model))


@pytest.mark.parametrize(
  ('fields', 'said'),
  [
    (dict(words=True), r'config\.model\.words=False, got True'),
    (dict(token_labels=()), r"expected config\.model\.token_labels=\(\('tag', 0\),\)"),
    (dict(labels=(('next', 2),)), r"labels=\(\), got .*'next'"),
    (dict(token_labels=(('tag', 0),)), "expected config.data.task.name='tags'"),
  ],
)
def test_other_heads_are_refused(fields, said):
  c = config()
  c.model.update(fields)
  with pytest.raises(UserError, match=said):
    tag.make(c)
