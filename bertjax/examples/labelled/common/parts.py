"""The parts of a row, which is an example, the choices of one or its texts in both orders; and rows
that end in [CLS]."""

from typing import Any

import numpy as np

from bertjax.data_contracts import Labelled
from bertjax.errors import UserError


def count(examples: Labelled) -> int:
  """Parts of a row."""
  return int(examples.part_n[0].max()) if examples.part_n else 1


def is_cls_last(model: Any) -> bool:
  """Returns True if a `config.model` reads rows in which [CLS] ends each part."""
  return 'pooling' in model and model.pooling == 'last'


def stands_last(model: Any) -> bool:
  """Returns True if a `config.model` reads labels of examples off the last token of each part."""
  return 'pooling' in model and model.pooling in ('last', 'end')


def has_both_orders(model: Any) -> bool:
  """Returns True if a `config.model` reads pairs of texts in both orders."""
  return 'both_orders' in model and model.both_orders


def with_both_orders(examples: Labelled) -> Labelled:
  """Returns pairs of texts in both orders as two parts: [CLS] a [SEP] b [SEP], and behind it [CLS]
  b [SEP] a [SEP]. Raises UserError: examples of one text."""
  if examples.part_n or not all(type_T.any() for type_T in examples.type_n):
    raise UserError(
      'config.model.both_orders reads two texts in both orders: expected config.data.task.name='
      "'classify' with two columns in config.data.task.text; set config.model.both_orders=False"
    )
  sizes = [(int(np.argmax(type_T)), len(type_T)) for type_T in examples.type_n]
  swap = lambda x_T, at, end: np.concatenate([x_T[:1], x_T[at:], x_T[1:at]])
  each = list(zip(examples.id_n, sizes, strict=True))
  return examples._replace(
    id_n=[np.concatenate([id_T, swap(id_T, *size)]) for id_T, size in each],
    type_n=[
      np.repeat(np.array([0, 1, 0, 1], np.int32), (at, end - at, end - at + 1, at - 1))
      for at, end in sizes
    ],
    part_n=[np.repeat(np.array([1, 2], np.int32), end) for _, end in sizes],
  )


def with_cls_last(examples: Labelled) -> Labelled:
  """Returns the examples as XLNet reads them: the [CLS] that begins a part ends it, in segment 2.
  [CLS] a [SEP] b [SEP] becomes a [SEP] b [SEP] [CLS] (zihangdai/xlnet, classifier_utils.py). The
  original pads on the left, which tells a model nothing that knows distances alone."""
  part_n = examples.part_n or [np.ones(len(id_n), np.int32) for id_n in examples.id_n]
  turned = lambda found: [_turned(x_T, p_T) for x_T, p_T in zip(found, part_n, strict=True)]
  type_n = turned(examples.type_n)
  for type_T, part_T in zip(type_n, part_n, strict=True):
    type_T[ends(part_T)] = 2
  tokens = {name: turned(found) for name, found in examples.token_label.items()}
  return examples._replace(id_n=turned(examples.id_n), type_n=type_n, token_label=tokens)


def _turned(x_T: np.ndarray, part_T: np.ndarray) -> np.ndarray:
  """Returns the first entry of each part behind its others."""
  column_T = np.arange(1, len(x_T) + 1)
  column_T[ends(part_T)] = starts(part_T)
  return x_T[column_T]


def starts(part_T: np.ndarray) -> np.ndarray:
  """Returns the first column of each part."""
  return np.flatnonzero(np.diff(part_T, prepend=0))


def ends(part_T: np.ndarray) -> np.ndarray:
  """Returns the last column of each part."""
  return np.flatnonzero(np.diff(part_T, append=0))
