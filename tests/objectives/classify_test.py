"""The heads of fine-tuning against those of transformers: logits, loss and every gradient."""

import cases
import finetuned
import jax
import numpy as np
import parity
import pytest
import state_dicts
from flax.core import meta
from mutation import mutation

from bertjax import models
from bertjax.errors import UserError
from bertjax.kernels.dropout import noise_from_key
from bertjax.objectives import classify

# Family -> the class of transformers; those of XLM-R are RoBERTa's under another name.
FAMILIES = dict(
  bert='BertForSequenceClassification',
  ernie='ErnieForSequenceClassification',
  roberta='RobertaForSequenceClassification',
  albert='AlbertForSequenceClassification',
  electra='ElectraForSequenceClassification',
  modernbert='ModernBertForSequenceClassification',
  distilbert='DistilBertForSequenceClassification',
)
OTHERS = ('roberta', 'albert', 'electra', 'modernbert', 'distilbert')
CASES = [
  *((family, 'first', n) for family in ('bert', 'ernie') for n in (1, 2, 5)),
  *(
    (family, 'first', 3) for family in ('roberta', 'albert', 'electra', 'modernbert', 'distilbert')
  ),
  ('modernbert', 'mean', 3),
]


def config(family, classes, **more):
  return finetuned.config(family, labels=(('label', classes),), **more)


@pytest.mark.parametrize(('family', 'pooling', 'classes'), CASES)
@mutation(
  'classify: numbers are judged by their absolute error',
  'bertjax/objectives/classify.py',
  'error_BG = jnp.square(found_BG',
  'error_BG = jnp.abs(found_BG',
  case='bert-first-1',
)
@mutation(
  'classify: the head reads what the encoder gives',
  'bertjax/models/layers/heads.py',
  'return POOLERS[activation](dense(read_BGD))',
  'return dense(read_BGD)',
  case='bert-first-2',
)
@mutation(
  "classify: ELECTRA's head is BERT's",
  'bertjax/models/layers/heads.py',
  'return POOLERS[activation](dense(read_BGD))',
  'return jnp.tanh(dense(read_BGD))',
  case='electra-first-3',
)
@mutation(
  "classify: DistilBERT's head is BERT's",
  'configs/distill/distilbert.py',
  "pooler_activation='relu'",
  "pooler_activation='tanh'",
  case='distilbert-first-3',
)
@mutation(
  'classify: the mean is of padding too',
  'bertjax/models/layers/heads.py',
  "of_BGT = (batch['example_BT'][:, None] == number_1G1)",
  "of_BGT = (batch['example_BT'][:, None] < 1 + number_1G1)",
  case='modernbert-mean-3',
)
def test_logits_loss_and_gradients_are_those_of_transformers(family, pooling, classes):
  c = config(family, classes, pooling=pooling)
  batch = cases.batch([(17,), (40,), (9,)], 40, types=3, label='label')
  rng = np.random.default_rng(1)
  label = rng.integers(0, classes, 3) if classes > 1 else rng.normal(size=3).astype(np.float32)
  batch['label_BG'] = label[:, None]
  model = finetuned.random_model(FAMILIES[family], c, num_labels=classes)
  state, their_loss, their_logits, their_gradients = finetuned.run(
    model, input_ids=batch['token_BT'], attention_mask=batch['example_BT'],
    token_type_ids=batch['type_BT'], labels=label,
  )  # fmt: skip
  params = state_dicts.from_huggingface(state, c.model)
  objective = classify.make(c)
  loss, gradients = parity.loss_and_gradients(objective, params, batch)
  logits = jax.jit(objective.predict)(dict(params=params), (), batch)['label_BGC']['label'][:, 0]
  parity.close(logits, their_logits, parity.LOGITS, 'logits')
  assert abs(loss - their_loss) <= parity.LOSS * their_loss
  expected = state_dicts.from_huggingface(their_gradients, c.model)
  parity.close_gradients(gradients, expected)


def test_the_heads_input_is_dropped_in_training_alone():
  c = config('bert', 2)
  c.model.head_dropout = 0.5
  batch = cases.batch([(17,), (40,)], 40, types=3, label='label')
  finetuned.check_dropout(classify.make(c), batch, 'label')


@pytest.mark.parametrize(
  ('family', 'sides'), [('bert', 1), ('distilbert', 1), ('roberta', 2), ('electra', 2)]
)
@mutation(
  'classify: RoBERTa drops on one side',
  'configs/roberta.py',
  'pooler_dropout=True',
  'pooler_dropout=False',
  case='roberta-2',
)
def test_some_families_drop_on_both_sides_of_the_dense_layer(family, sides):
  """What the dense layer gives differs in training where its input is dropped."""
  c = config(family, 2)
  assert c.model.pooler_dropout == (sides == 2)
  c.model.head_dropout = 0.5
  model, batch = models.build(c.model), cases.batch([(17,), (40,)], 40, types=3, label='label')
  batch['row_B'] = np.arange(2, dtype=np.int32)
  noise = noise_from_key(jax.random.key(0), batch['row_B'])
  variables = meta.unbox(jax.jit(model.init)(jax.random.key(0), batch))
  apply = jax.jit(model.apply)
  dropped, whole = (apply(variables, batch, each)['pooled_BGD'] for each in (noise, None))
  assert (np.abs(dropped - whole).max() > 0.01) == (sides == 2)


@pytest.mark.parametrize(
  ('fields', 'said'),
  [
    (dict(words=True), r'config\.model\.words=False, got True'),
    (dict(labels=()), r"expected config\.model\.labels=\(\('label', 0\),\), got \(\)"),
    (dict(labels=(('next', 2),)), 'expected config.model.labels'),
  ],
)
def test_other_heads_are_refused(fields, said):
  c = config('bert', 2)
  c.model.update(fields)
  with pytest.raises(UserError, match=said):
    classify.make(c)
