"""One word for where the time of a run goes."""

from collections.abc import Mapping

# Part of the wall time -> what a run is called that spends more than a tenth of it there, beside
# computing, and nowhere more.
WORDS = {
  'compute': 'compute-bound',
  'input': 'input-bound',
  'checkpoint': 'checkpoint-bound',
  'eval': 'eval-bound',
  'compile': 'compile-bound',
  'other': 'host-bound',
}


def verdict(seconds: Mapping[str, float]) -> str:
  """The word of the largest part besides compute with more than a tenth.

  Args:
    seconds: of each part.

  >>> verdict(dict(compute=8.0, input=2.0))
  'input-bound'
  >>> verdict(dict(compute=9.9, input=0.1))
  'compute-bound'
  """
  waits = {part: spent for part, spent in seconds.items() if part != 'compute'}
  worst = max(waits, key=lambda part: waits[part], default='compute')
  total = sum(seconds.values())
  slow = total and waits.get(worst, 0.0) > 0.1 * total
  return WORDS[worst] if slow else WORDS['compute']
