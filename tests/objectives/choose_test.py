"""The head for choices against that of transformers: logits, loss and every gradient."""

import cases
import finetuned
import jax
import numpy as np
import parity
import pytest
import state_dicts
from mutation import mutation

from bertjax.errors import UserError
from bertjax.objectives import choose

# Family and pooling -> the class of transformers; those of XLM-R are RoBERTa's under another name.
FAMILIES = {
  ('bert', 'first'): 'BertForMultipleChoice',
  ('ernie', 'first'): 'ErnieForMultipleChoice',
  ('roberta', 'first'): 'RobertaForMultipleChoice',
  ('albert', 'first'): 'AlbertForMultipleChoice',
  ('electra', 'first'): 'ElectraForMultipleChoice',
  ('distilbert', 'first'): 'DistilBertForMultipleChoice',
  ('modernbert', 'first'): 'ModernBertForMultipleChoice',
  ('modernbert', 'mean'): 'ModernBertForMultipleChoice',
}
FULL = ('ernie', 'roberta', 'albert', 'distilbert')


def config(family='bert', pooling='first'):
  return finetuned.config(family, labels=(('right', 1),), pooling=pooling)


def unpacked(batch, name):
  return finetuned.unpacked(batch, batch[name])


@pytest.mark.parametrize(
  ('family', 'pooling'),
  [
    *(('bert', 'first'), ('electra', 'first'), ('modernbert', 'first'), ('modernbert', 'mean')),
    *(pytest.param(name, 'first', marks=pytest.mark.full) for name in FULL),
  ],
)
@mutation(
  'choose: each choice is judged by itself',
  'bertjax/objectives/choose.py',
  'nll_B = jax.nn.logsumexp(logits_BG, axis=1) - picked_B',
  'nll_B = jax.nn.softplus(-picked_B)',
  case='bert-first',
)
@mutation(
  'choose: the choices see each other',
  'bertjax/models/layers/attend.py',
  '  return Mask(example_BT, example_BT)\n',
  '  return Mask(jnp.minimum(example_BT, 1), jnp.minimum(example_BT, 1))\n',
  case='bert-first',
)
def test_logits_loss_and_gradients_are_those_of_transformers(family, pooling):
  c = config(family, pooling)
  batch = cases.batch(finetuned.CHOICES, 44, types=3)
  batch['right_BG'] = np.eye(3, dtype=np.float32)[[2, 0]]
  model = finetuned.random_model(FAMILIES[family, pooling], c)
  state, their_loss, their_logits, their_gradients = finetuned.run(
    model, input_ids=unpacked(batch, 'token_BT'),
    attention_mask=(unpacked(batch, 'example_BT') > 0).astype(np.int64),
    token_type_ids=unpacked(batch, 'type_BT'), labels=np.array([2, 0]),
  )  # fmt: skip
  params = state_dicts.from_huggingface(state, c.model)
  objective = choose.make(c)
  loss, gradients = parity.loss_and_gradients(objective, params, batch)
  logits = jax.jit(objective.predict)(dict(params=params), (), batch)['label_BGC']['right'][..., 0]
  parity.close(logits, their_logits, parity.LOGITS, 'logits')
  assert abs(loss - their_loss) <= parity.LOSS * their_loss
  expected = state_dicts.from_huggingface(their_gradients, c.model)
  finetuned.close_but_for_the_bias('right', gradients, expected)


@pytest.mark.parametrize(
  ('fields', 'said'),
  [
    (dict(words=True), r'config\.model\.words=False, got True'),
    (dict(labels=(('right', 2),)), r"expected config\.model\.labels=\(\('right', 1\),\)"),
    (dict(labels=(('label', 1),)), r'expected config\.model\.labels'),
  ],
)
def test_other_heads_are_refused(fields, said):
  c = config()
  c.model.update(fields)
  with pytest.raises(UserError, match=said):
    choose.make(c)
