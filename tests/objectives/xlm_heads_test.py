"""XLM's heads of fine-tuning against those of transformers: logits, loss and every gradient.

Each row has a language.
"""

import cases
import finetuned
import numpy as np
import parity
import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.objectives import choose, classify, spans, tag

LENGTHS, LENGTH, CLASSES = (17, 40, 9), 40, 5


def config(**heads):
  return finetuned.config('xlm', **heads)


def batch_of(rows, length):
  batch = cases.batch(rows, length, types=0)
  language_B = np.array([2, 0, 2], np.int32)[: len(rows)]
  batch['language_BT'] = np.broadcast_to(language_B[:, None], (len(rows), length)).copy()
  return batch


def inputs(batch):
  """What theirs reads; the segments, which are words to it, are left out."""
  long = lambda x: np.asarray(x, np.int64)
  return dict(
    input_ids=long(batch['token_BT']), attention_mask=long(batch['example_BT'] > 0),
    langs=long(batch['language_BT']),
  )  # fmt: skip


@mutation(
  'xlm heads: a dense layer and tanh are before the labels',
  'configs/xlm.py',
  "pooler_activation='none'",
  "pooler_activation='tanh'",
)
@mutation(
  'xlm heads: all tokens are of one language',
  'bertjax/models/layers/embeddings.py',
  "[batch[f'{name}_BT']]",
  "[0 * batch[f'{name}_BT']]",
)
def test_sequences():
  c = config(labels=(('label', CLASSES),))
  batch = batch_of([(n,) for n in LENGTHS], LENGTH)
  label = np.random.default_rng(1).integers(0, CLASSES, 3)
  batch['label_BG'] = label[:, None]
  kind = 'XLMForSequenceClassification'
  model = finetuned.random_model(kind, c, num_labels=CLASSES)
  found = finetuned.run(model, **inputs(batch), labels=label)
  ours = lambda out, logits: (out['label_BGC']['label'][:, 0], logits)
  parity.close_gradients(*finetuned.compared(classify.make(c), c, batch, found, ours))


@pytest.mark.full
def test_tags():
  c = config(token_labels=(('tag', CLASSES),))
  batch = batch_of([(n,) for n in LENGTHS], LENGTH)
  labels = finetuned.tagged(batch, CLASSES)
  model = finetuned.random_model('XLMForTokenClassification', c, num_labels=CLASSES)
  found = finetuned.run(model, **inputs(batch), labels=labels)
  real_BT = batch['example_BT'] > 0
  ours = lambda out, logits: (
    np.asarray(out['token_label_BTC']['tag'])[real_BT], logits[real_BT]
  )  # fmt: skip
  parity.close_gradients(*finetuned.compared(tag.make(c), c, batch, found, ours))


@pytest.mark.full
def test_questions():
  c = config(token_labels=(('span', 2),))
  batch = batch_of([(n,) for n in LENGTHS], LENGTH)
  start_B, end_B = (np.array(LENGTHS) // part for part in (3, 2))
  batch['span_start_BG'], batch['span_end_BG'] = start_B[:, None], end_B[:, None]
  model = finetuned.random_model('XLMForQuestionAnsweringSimple', c)
  found = finetuned.run_spans(model, start_B, end_B, **inputs(batch))
  real_BT = batch['example_BT'] > 0
  ours = lambda out, logits: (
    np.asarray(out['token_label_BTC']['span'])[real_BT], logits[real_BT]
  )  # fmt: skip
  gradients, expected = finetuned.compared(spans.make(c), c, batch, found, ours)
  finetuned.close_but_for_the_bias('span', gradients, expected)


@pytest.mark.full
def test_choices():
  c, batch = config(labels=(('right', 1),)), batch_of(finetuned.CHOICES, 44)
  batch['right_BG'] = np.eye(3, dtype=np.float32)[[2, 0]]
  own = dict(summary_use_proj=False, num_labels=c.model.width)
  model = finetuned.random_model('XLMForMultipleChoice', c, **own)
  given = {name: finetuned.unpacked(batch, x_BT) for name, x_BT in inputs(batch).items()}
  found = finetuned.run(model, **given, labels=np.array([2, 0]))
  ours = lambda out, logits: (out['label_BGC']['right'][..., 0], logits)
  gradients, expected = finetuned.compared(choose.make(c), c, batch, found, ours)
  finetuned.close_but_for_the_bias('right', gradients, expected)


@mutation(
  'xlm heads: the pooler that is left out costs as much',
  'bertjax/models/bert.py',
  "between = 0 if self.pooler_activation == 'none' else self.width * self.width",
  'between = self.width * self.width',
)
def test_flops_leave_the_pooler_out():
  c, batch = config(labels=(('label', 2),)), batch_of([(n,) for n in LENGTHS], LENGTH)
  width, flops = c.model.width, classify.make(c).flops(batch)
  c.model.pooler_activation = 'tanh'
  assert classify.make(c).flops(batch) - flops == 6 * len(LENGTHS) * width * width


def test_a_pooler_beside_none_is_refused():
  c = config(labels=(('label', 2),), pooler=True)
  with pytest.raises(UserError, match="pooler_activation='none' leaves the pooler out"):
    classify.make(c)
