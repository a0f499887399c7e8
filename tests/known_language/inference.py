"""Exact inference in a hidden Markov chain, by forward and backward messages. Float64, NumPy.

Axes: R rows, C columns of a row as a model sees it, T places of the chain, K states, W words,
P predicted columns.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse

from tests.known_language.language import Language


class Chain(NamedTuple):
  """A stationary hidden Markov chain."""

  start_K: np.ndarray  # P(state) of the first place
  step_KK: scipy.sparse.csr_array  # sparse, P(column | row) from one place to the next
  emit_KW: np.ndarray  # P(word | state)


class Reading(NamedTuple):
  """One way in which rows may have come about."""

  prior: float  # of this way
  # where in the chain the word of a column stands; -1 of special tokens. Two columns may have one
  # place (a word and its translation), and a place may have none (what was left out).
  place_RC: np.ndarray
  restart_RT: np.ndarray  # bool, whether the chain begins anew at a place


class Beliefs(NamedTuple):
  """What the rows say of their words."""

  reading_RN: np.ndarray  # P(reading | row)
  word_RPW: np.ndarray  # P(word of a column | row)


def chain_of(language: Language) -> Chain:
  """The chain whose states are the last `lag` words, and whose words are the last of these."""
  words, lag = language.words, language.lag
  states = words**lag
  from_n, to_n = np.nonzero(np.tile(language.follow_WW, (words ** (lag - 1), 1)))
  # Of lag 2, state (a, b) = a + words * b goes to (b, c), where c follows from a.
  first_n, rest_n = from_n % words, from_n // words
  to_state_n = rest_n + to_n * words ** (lag - 1)
  share_n = language.follow_WW[first_n, to_n]
  step_KK = scipy.sparse.csr_array((share_n, (from_n, to_state_n)), shape=(states, states))
  last_K = np.arange(states) // words ** (lag - 1)
  emit_KW = (1 - language.noise) * np.eye(words)[last_K] + language.noise / words
  return Chain(np.full(states, 1 / states), step_KK, emit_KW)


def posterior(
  chain: Chain, seen_RTK: np.ndarray, restart_RT: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """P(state of each place | all that was seen), [R, T, K], and log P(what was seen), [R]. The
  posterior is 0 in rows whose probability is 0.

  Args:
    chain: the chain.
    seen_RTK: P(what is seen of a place | its state).
    restart_RT: bool, where the chain begins anew.
  """
  before_RTK, log_R = forward(chain, seen_RTK, restart_RT)
  after_RK, belief_RTK = np.ones_like(seen_RTK[:, 0]), before_RTK * seen_RTK
  for t in range(seen_RTK.shape[1] - 2, -1, -1):
    back_RK = _scaled((chain.step_KK @ (after_RK * seen_RTK[:, t + 1]).T).T)[0]
    after_RK = np.where(restart_RT[:, t + 1, None], 1.0, back_RK)
    belief_RTK[:, t] *= after_RK
  return _scaled(belief_RTK)[0], log_R


def forward(
  chain: Chain, seen_RTK: np.ndarray, restart_RT: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """P(state of each place | what was seen before it), [R, T, K], and log P(all), [R]."""
  before_RTK = np.empty_like(seen_RTK)
  before_RTK[:, 0] = chain.start_K
  log_R = np.zeros(len(seen_RTK))
  for t in range(seen_RTK.shape[1]):
    here_RK, total_R = _scaled(before_RTK[:, t] * seen_RTK[:, t])
    with np.errstate(divide='ignore'):
      log_R += np.log(total_R)
    if t + 1 < seen_RTK.shape[1]:
      moved_RK = here_RK @ chain.step_KK
      before_RTK[:, t + 1] = np.where(restart_RT[:, t + 1, None], chain.start_K, moved_RK)
  return before_RTK, log_R


def believe(
  chain: Chain,
  channel_RCW: np.ndarray,
  readings: Sequence[Reading],
  column_RP: np.ndarray,
  own_RPW: np.ndarray | float = 1.0,
) -> Beliefs:
  """What rows tell of the words of some of their columns.

  Args:
    chain: the chain.
    channel_RCW: P(what a column shows | its word), up to a factor; ones where it shows nothing.
    readings: the ways in which the rows may have come about.
    column_RP: the columns.
    own_RPW: what replaces the channel of a column where its own word is asked for, if more is known
      of it then: that it was selected.
  """
  rows = np.arange(len(channel_RCW))[:, None]
  words, logs = [], []
  for reading in readings:
    seen_RTK = seen(chain, channel_RCW, reading)
    belief_RTK, log_R = posterior(chain, seen_RTK, reading.restart_RT)
    # A special token among the columns stands at place -1: whatever is found there is not used.
    state_RPK = belief_RTK[rows, reading.place_RC[rows, column_RP]]
    shown_RPK = channel_RCW[rows, column_RP] @ chain.emit_KW.T
    state_RPK = np.divide(state_RPK, shown_RPK, out=np.zeros_like(state_RPK), where=shown_RPK > 0)
    words.append(state_RPK @ chain.emit_KW)
    logs.append(log_R + np.log(reading.prior))
  log_RN = np.stack(logs, 1)
  reading_RN = np.exp(log_RN - log_RN.max(1, keepdims=True))
  reading_RN /= reading_RN.sum(1, keepdims=True)
  word_RPW = np.einsum('rn,nrpw->rpw', reading_RN, np.stack(words))
  return Beliefs(reading_RN, _scaled(word_RPW * own_RPW)[0])


def seen(chain: Chain, channel_RCW: np.ndarray, reading: Reading) -> np.ndarray:
  """P(what the columns of a place show | its state), [R, T, K]."""
  rows, places = reading.restart_RT.shape
  seen_RTK = np.ones((rows, places, len(chain.start_K)))
  for place_R, channel_RW in zip(reading.place_RC.T, channel_RCW.swapaxes(0, 1), strict=True):
    row_n = np.flatnonzero(place_R >= 0)
    seen_RTK[row_n, place_R[row_n]] *= channel_RW[row_n] @ chain.emit_KW.T
  return seen_RTK


def _scaled(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Divided by its sum over the last axis, 0 where that is 0; and the sum."""
  total = x.sum(-1, keepdims=True)
  return np.divide(x, total, out=np.zeros_like(x), where=total > 0), total[..., 0]
