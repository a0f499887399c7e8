"""BERT's pairs, written out sentence by sentence (google-research/bert)."""

import numpy as np
from toy_store import laid

from bertjax import counter_rng
from bertjax.data_contracts import Spec
from bertjax.examples.plans import pairs


class KeyedDraws:
  """The draws of the plan, one at a time."""

  def __init__(self, seed, turn):
    self.turn_key = counter_rng.fold(counter_rng.root(seed, 'pairs'), turn)

  def document(self, document):
    self.key = counter_rng.fold(counter_rng.fold(self.turn_key, pairs._TARGET), document)
    return self

  def chunk(self, sentence):
    self.key = counter_rng.fold(counter_rng.fold(self.turn_key, pairs._CHUNK), sentence)

  def uniform(self, site):
    return float(counter_rng.uniform(counter_rng.fold(self.key, site))[0])

  def below(self, site, bound):
    return int(counter_rng.below(counter_rng.fold(self.key, site), bound)[0])

  def other(self, attempt, bound):
    key = counter_rng.fold(counter_rng.fold(self.key, pairs._OTHER), attempt)
    return int(counter_rng.below(key, bound)[0])

  def fronts(self, site, count):
    """Of `count` removals, how many are from the front."""
    return int(counter_rng.coin_flips(counter_rng.fold(self.key, site), np.array([count]))[0])


def sequential(documents, draw, usable, short_prob, pair_of=None):
  """create_instances_from_document, with (tokens of A, tokens of B, label) for every instance."""
  out, at = [], 0
  for d, document in enumerate(documents):
    draw.document(d)
    target = usable
    if draw.uniform(0) < short_prob:
      target = 2 + draw.below(1, usable - 1)
    chunk, size, i = [], 0, 0
    while i < len(document):
      chunk.append(document[i])
      size += len(document[i])
      if i == len(document) - 1 or size >= target:
        draw.chunk(at + i + 1 - len(chunk))
        pair, unused = (pair_of or one_pair)(documents, d, chunk, target, draw)
        out.append(truncate(*pair, usable, draw))
        i -= unused
        chunk, size = [], 0
      i += 1
    at += len(document)
  return out


def one_pair(documents, d, chunk, target, draw):
  a_end = 1
  if len(chunk) >= 2:
    a_end = 1 + draw.below(pairs._A_END, len(chunk) - 1)
  a = sum(chunk[:a_end], [])
  if len(chunk) > 1 and draw.uniform(pairs._COIN) >= 0.5:
    return (a, sum(chunk[a_end:], []), 0), 0
  for attempt in range(10):
    other = draw.other(attempt, len(documents))
    if other != d:
      break
  b = []
  for sentence in documents[other][draw.below(pairs._START, len(documents[other])) :]:
    b = b + sentence
    if len(b) >= target - len(a):
      break
  return (a, b, 1), len(chunk) - a_end


def truncate(a, b, label, usable, draw):
  lost = [0, 0]
  while len(a) + len(b) - sum(lost) > usable:
    lost[0 if len(a) - lost[0] > len(b) - lost[1] else 1] += 1
  out = []
  for tokens, count, site in ((a, lost[0], pairs._FRONT_A), (b, lost[1], pairs._FRONT_B)):
    front = draw.fronts(site, count)
    out.append(tokens[front : len(tokens) - (count - front)])
  return (*out, label)


def as_lists(store):
  s, d = store.sentences, store.documents
  return [
    [store.tokens[s[i] : s[i + 1]].tolist() for i in range(d[j], d[j + 1])]
    for j in range(len(d) - 1)
  ]


def instances(store, column, plan=pairs.PLAN, label='next'):
  """(A, B, label) of every planned example, read back from the gathered tokens."""
  text = laid(store, plan, Spec(None, int(column['length'].max()), 0), column)
  bounds = np.cumsum(text.length_E)[:-1]
  out = []
  for token, kind, found in zip(
    np.split(text.token_n, bounds),
    np.split(text.type_n, bounds),
    text.ranges.label[label],
    strict=True,
  ):
    first = int((kind == 0).sum())
    assert token[0] == store.special['cls'] and token[first - 1] == token[-1]
    assert token[-1] == store.special['sep']
    out.append((token[1 : first - 1].tolist(), token[first:-1].tolist(), int(found)))
  return out
