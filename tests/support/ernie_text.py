"""Text for the tests of ERNIE's plans and masking."""

import numpy as np
from small_stores import write_store

from bertjax.store.reader import open_store

SPECIAL = dict(pad=0, unk=1, cls=2, sep=3, mask=4)
VOCABULARY = dict(type='t', size=3000, sha256='', special=SPECIAL)


def write_units(path):
  """Units of 1 to 4 tokens, roles in turn, dialogues of 1 to 7 turns; ids say the place."""
  draw = np.random.default_rng(0)
  documents, units, roles = [], [], []
  for _ in range(900):
    sentences = [draw.geometric(1 / 9) + 1 for _ in range(draw.integers(1, 8))]
    documents.append([draw.integers(5, 3000, n) for n in sentences])
    units.append([np.append(2, draw.random(n - 1) < 0.5) for n in sentences])
    roles.append([k % 2 for k in range(len(sentences))])
  write_store(path, documents, VOCABULARY, None, units, dict(role=roles))
  return open_store(path)
