"""The parts of a row, which is an example, or the choices of one; and rows that end in [CLS]."""

from typing import Any

import numpy as np

from bertjax.data_contracts import Labelled


def count(examples: Labelled) -> int:
  """Parts of a row."""
  return int(examples.part_n[0].max()) if examples.part_n else 1


def is_cls_last(model: Any) -> bool:
  """Returns True if a `config.model` reads rows in which [CLS] ends each part."""
  return 'pooling' in model and model.pooling == 'last'


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
