"""XLNet's heads of fine-tuning against those of transformers: logits, loss and every gradient.

Theirs is padded on the left, as XLNet is, and ours on the right: it knows distances alone.
"""

import cases
import finetuned
import numpy as np
import parity
import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.objectives import choose, classify, mlm, spans, tag

LENGTHS, LENGTH, CLASSES = (17, 40, 9), 40, 5


def config(**heads):
  return finetuned.config('xlnet', **heads)


def batch_of(rows, length):
  """A batch whose examples end in a token of segment 2, which stands for them."""
  batch = cases.batch(rows, length)
  for b, parts in enumerate(rows):
    ends_G = np.cumsum(parts) - 1
    batch['type_BT'][b, ends_G] = 2
    batch['first_BG'][b, : len(parts)] = ends_G
  return batch


def left(x_BT, lengths=LENGTHS):
  """The rows with their padding before them, int64."""
  return np.stack([np.roll(x_T, LENGTH - n) for x_T, n in zip(x_BT, lengths, strict=True)]).astype(
    np.int64
  )


def theirs(kind, c, batch, labels, **more):
  model = finetuned.random_model(kind, c, **more)
  return finetuned.run(
    model, input_ids=left(batch['token_BT']), attention_mask=left(batch['example_BT']),
    token_type_ids=left(batch['type_BT']), labels=labels,
  )  # fmt: skip


def check(objective, c, batch, found, ours):
  """Loss, logits and gradients; `ours` picks the logits of what the objective predicts."""
  gradients, expected = finetuned.compared(objective, c, batch, found, ours)
  for each in (expected, gradients):  # the query stream's, which nothing reads
    assert not np.any(each.pop('mask'))
  return gradients, expected


@mutation(
  'xlnet heads: the first token stands for the text',
  'bertjax/models/xlnet.py',
  'pooler(self, pool(x_BTD, batch, self.pooling), init)',
  'pooler(self, x_BTD[:, :1], init)',
)
def test_sequences():
  c = config(labels=(('label', CLASSES),))
  batch = batch_of([(n,) for n in LENGTHS], LENGTH)
  label = np.random.default_rng(1).integers(0, CLASSES, 3)
  batch['label_BG'] = label[:, None]
  kind = 'XLNetForSequenceClassification'
  found = theirs(kind, c, batch, label, num_labels=CLASSES)
  ours = lambda out, logits: (out['label_BGC']['label'][:, 0], logits)
  parity.close_gradients(*check(classify.make(c), c, batch, found, ours))


@pytest.mark.full
def test_tags():
  c = config(token_labels=(('tag', CLASSES),))
  batch = batch_of([(n,) for n in LENGTHS], LENGTH)
  labels, real_BT = left(finetuned.tagged(batch, CLASSES)), batch['example_BT'] > 0
  kind = 'XLNetForTokenClassification'
  found = theirs(kind, c, batch, labels, num_labels=CLASSES)
  picked = lambda out, logits: (
    np.asarray(out['token_label_BTC']['tag'])[real_BT], logits[left(real_BT) > 0]
  )  # fmt: skip
  parity.close_gradients(*check(tag.make(c), c, batch, found, picked))


@pytest.mark.full
def test_questions():
  c = config(token_labels=(('span', 2),))
  batch = batch_of([(n,) for n in LENGTHS], LENGTH)
  start_B, end_B = (np.array(LENGTHS) // part for part in (3, 2))
  batch['span_start_BG'], batch['span_end_BG'] = (
    x[:, None].astype(np.int32) for x in (start_B, end_B)
  )
  moved = LENGTH - np.array(LENGTHS)  # by the padding before a row
  model = finetuned.random_model('XLNetForQuestionAnsweringSimple', c)
  found = finetuned.run_spans(
    model, start_B + moved, end_B + moved, input_ids=left(batch['token_BT']),
    attention_mask=left(batch['example_BT']), token_type_ids=left(batch['type_BT']),
  )  # fmt: skip
  real_BT = batch['example_BT'] > 0
  picked = lambda out, logits: (
    np.asarray(out['token_label_BTC']['span'])[real_BT], logits[left(real_BT) > 0]
  )  # fmt: skip
  gradients, expected = check(spans.make(c), c, batch, found, picked)
  finetuned.close_but_for_the_bias('span', gradients, expected)


@pytest.mark.full
def test_choices():
  c, batch = config(labels=(('right', 1),)), batch_of(finetuned.CHOICES, 44)
  batch['right_BG'] = np.eye(3, dtype=np.float32)[[2, 0]]
  apart = lambda name: finetuned.unpacked(batch, batch[name], left=True)
  model = finetuned.random_model('XLNetForMultipleChoice', c)
  found = finetuned.run(
    model, input_ids=apart('token_BT'), attention_mask=(apart('example_BT') > 0).astype(np.int64),
    token_type_ids=apart('type_BT'), labels=np.array([2, 0]),
  )  # fmt: skip
  ours = lambda out, logits: (out['label_BGC']['right'][..., 0], logits)
  gradients, expected = check(choose.make(c), c, batch, found, ours)
  finetuned.close_but_for_the_bias('right', gradients, expected)


def test_words_beside_labels_and_masked_words_are_refused():
  c = config(labels=(('label', 2),))
  c.model.words = True
  with pytest.raises(UserError, match='XLNet has words or labels: expected config.model.words=F'):
    classify.make(c)
  c = cases.config('xlnet')
  c.objective.name = 'mlm'
  with pytest.raises(UserError, match="needs config.model.name='bert'.* got 'xlnet'"):
    mlm.make(c)
