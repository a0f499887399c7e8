"""Documents of a store by language, and those that are translations of each other.

What is called language here is a plan's column `group`: for parallel text it is the pair.
"""

from typing import NamedTuple

import numpy as np

from bertjax import counter_rng


def parallel(store) -> np.ndarray:
  """Returns the documents that are a sentence and its translation, int64. They have two sentences,
  of different languages; a store that knows no languages has none."""
  if 'language' not in store.columns:
    return np.zeros(0, np.int64)
  language_S = store.column('language')
  two_D = np.flatnonzero(np.diff(store.documents) == 2)
  first_n = store.documents[two_D]
  return two_D[language_S[first_n] != language_S[first_n + 1]]


def kinds(store) -> np.ndarray | None:
  """Returns the kind of each sentence: 2 * its language, plus 1 in a document that is a sentence
  and its translation; None if the store has no languages."""
  if 'language' not in store.columns:
    return None
  kind_S = 2 * store.column('language').astype(np.int16)
  first_n = store.documents[parallel(store)]
  kind_S[first_n] += 1
  kind_S[first_n + 1] += 1
  return kind_S


class Peers(NamedTuple):
  """The documents of each language; those of a store that knows none are all alike."""

  language_D: np.ndarray | None  # uint8, or None
  document_n: np.ndarray  # int64, language by language
  start_l: np.ndarray  # int64, where each language begins in document_n
  size_l: np.ndarray  # int64, its documents

  def draw(self, bits_n: np.ndarray, document_n: np.ndarray) -> np.ndarray:
    """Turns uint64 bits into documents of the same language as these ones, int64."""
    if self.language_D is None:
      return counter_rng.below(bits_n, self.size_l)
    language_n = self.language_D[document_n]
    place_n = self.start_l[language_n] + counter_rng.below(bits_n, self.size_l[language_n])
    return self.document_n[place_n]


def peers(store) -> Peers:
  """Groups the documents of a store by the language of their first sentence."""
  none = np.zeros(0, np.int64)
  if 'language' not in store.columns:
    return Peers(None, none, none, np.array([len(store.documents) - 1]))
  language_D = np.asarray(store.column('language')[store.documents[:-1]])
  size_l = np.bincount(language_D)
  return Peers(
    language_D, np.argsort(language_D, kind='stable'), np.cumsum(size_l) - size_l, size_l
  )
