"""The heads of fine-tuning, a row each, with what transformers makes of the same rows of text."""

from typing import Any, NamedTuple

import cases
import finetuned
import numpy as np
import pytest
import torch_models

from bertjax.objectives import choose, classify, spans, tag

# Family -> how its classes of transformers begin; those of XLM-R are RoBERTa's.
FAMILIES = dict(
  bert='Bert', ernie='Ernie', roberta='Roberta', albert='Albert', electra='Electra',
  modernbert='ModernBert', distilbert='DistilBert', xlnet='XLNet', xlm='XLM', gpt='GPT2',
  deberta_v3='DebertaV2',
)  # fmt: skip
OTHERS = ('roberta', 'albert', 'electra', 'modernbert', 'distilbert', 'deberta_v3')
ONE_POOLING = ('xlnet', 'xlm', 'gpt')
SIMPLE = ('xlnet', 'xlm')  # whose class for questions of this form is called so
LENGTHS, LENGTH, CLASSES = (17, 40, 9), 40, 5


class Head(NamedTuple):
  """objective: its module; ends: of the classes' names; fields: of the model."""

  objective: Any
  ends: str
  fields: dict[str, Any]


LABELS = lambda classes: Head(
  classify, 'ForSequenceClassification', dict(labels=(('label', classes),))
)
TAGS = Head(tag, 'ForTokenClassification', dict(labels=(), token_labels=(('tag', CLASSES),)))
SPANS = Head(spans, 'ForQuestionAnswering', dict(labels=(), token_labels=(('span', 2),)))
RIGHT = Head(choose, 'ForMultipleChoice', dict(labels=(('right', 1),)))


def row(family, head, name, *, full=False, pooling='first', lengths=LENGTHS):
  marks = [pytest.mark.full] * full
  return pytest.param(family, head, pooling, lengths, id=f'{family}-{name}', marks=marks)


CASES = [
  *(row('bert', LABELS(n), f'label-{n}', full=n == 5) for n in (1, 2, 5)),
  *(row('ernie', LABELS(n), f'label-{n}', full=True) for n in (1, 5)),
  *(row(f, LABELS(3), 'label-3', full=f != 'electra') for f in OTHERS),
  row('modernbert', LABELS(3), 'label-mean', pooling='mean'),
  *(row(f, LABELS(CLASSES), 'label-5', full=f == 'xlm') for f in ONE_POOLING),
  *(row(f, TAGS, 'tags', full=f != 'bert') for f in FAMILIES),
  *(row(f, RIGHT, 'right', full=f != 'bert') for f in FAMILIES if f != 'gpt'),
  row('modernbert', RIGHT, 'right-mean', pooling='mean', full=True),
  *(row(f, SPANS, 'spans', full=f != 'bert') for f in FAMILIES),
  *(
    row(f, SPANS, 'spans-whole', full=True, lengths=(LENGTH,) * 3)
    for f in FAMILIES
    if f not in SIMPLE
  ),
]


def config(family, head, pooling='first'):
  more = {} if family in ONE_POOLING else dict(pooling=pooling)
  return finetuned.config(family, **head.fields, **more)


def batch_of(family, rows, length):
  """A batch; the last token of XLNet's and GPT's examples stands for them, of XLNet's in segment 2,
  and each row of XLM has a language."""
  batch = cases.batch(rows, length, types=0 if family in ('xlm', 'gpt') else 3)
  for b, parts in enumerate(rows if family in ('xlnet', 'gpt') else ()):
    ends_G = np.cumsum(parts) - 1
    batch['type_BT'][b, ends_G] = 2 * (family == 'xlnet')
    batch['first_BG'][b, : len(parts)] = ends_G
  if family == 'xlm':
    language_B = np.array([2, 0, 2], np.int32)[: len(rows)]
    batch['language_BT'] = np.broadcast_to(language_B[:, None], (len(rows), length)).copy()
  return batch


def moved(family, x_BT, lengths):
  """The rows as theirs takes them, int64: XLNet's with their padding before them."""
  shift = [len(x_BT[0]) - n if family == 'xlnet' else 0 for n in lengths]
  return np.stack([np.roll(x_T, n) for x_T, n in zip(x_BT, shift, strict=True)]).astype(np.int64)


def inputs(family, batch, place):
  """What theirs reads; segments of XLM and GPT, which are words to them, are left out."""
  names = dict(input_ids='token_BT', attention_mask='example_BT', token_type_ids='type_BT')
  if family == 'xlm':
    names = names | dict(langs='language_BT')
  if family in ('xlm', 'gpt'):  # to which types are words
    del names['token_type_ids']
  found = {key: place(batch[name]) for key, name in names.items()}
  return found | dict(attention_mask=(found['attention_mask'] > 0).astype(np.int64))


def labelled(head, batch, lengths):
  """Gives the batch its labels; returns those of theirs, before they are moved."""
  if head is TAGS:
    return finetuned.tagged(batch, CLASSES)
  if head is SPANS:
    ends = [np.array(lengths) // part for part in (3, 2)]
    batch['span_start_BG'], batch['span_end_BG'] = (x[:, None].astype(np.int32) for x in ends)
    return ends
  if head is RIGHT:
    batch['right_BG'] = np.eye(3, dtype=np.float32)[[2, 0]]
    return np.array([2, 0])
  rng, classes = np.random.default_rng(1), head.fields['labels'][0][1]
  label = rng.integers(0, classes, 3) if classes > 1 else rng.normal(size=3).astype(np.float32)
  batch['label_BG'] = label[:, None]
  return label


def theirs(family, head, c, batch, lengths):
  """(what `finetuned.run` finds of theirs, how its logits are picked as `compared` takes them)."""
  place = lambda x_BT: moved(family, x_BT, lengths)
  labels = labelled(head, batch, lengths)
  name, more = FAMILIES[family] + head.ends, {}
  if head is SPANS:
    model = torch_models.like(c.model, name + 'Simple' * (family in SIMPLE))
    before = LENGTH - np.array(lengths) if family == 'xlnet' else 0
    ends = [np.asarray(each + before, np.int64) for each in labels]
    found = finetuned.run_spans(model, *ends, **inputs(family, batch, place))
  elif head is RIGHT:
    if family == 'xlm':
      more = dict(summary_use_proj=False, num_labels=c.model.width)
    apart = lambda x_BT: finetuned.unpacked(batch, x_BT, left=family == 'xlnet')
    model = torch_models.like(c.model, name, **more)
    found = finetuned.run(model, **inputs(family, batch, apart), labels=labels)
    return found, lambda out, logits: (out['label_BGC']['right'][..., 0], logits)
  else:
    key = 'labels' if head is not TAGS else 'token_labels'
    model = torch_models.like(c.model, name, num_labels=head.fields[key][0][1])
    labels = place(labels) if head is TAGS else labels
    found = finetuned.run(model, **inputs(family, batch, place), labels=labels)
  if head is not TAGS and head is not SPANS:
    return found, lambda out, logits: (out['label_BGC']['label'][:, 0], logits)
  real_BT, key = batch['example_BT'] > 0, 'tag' if head is TAGS else 'span'
  return found, lambda out, logits: (
    np.asarray(out['token_label_BTC'][key])[real_BT], logits[place(real_BT) > 0]
  )  # fmt: skip
