"""One word for where the time of a run goes."""

from collections.abc import Mapping


def verdict(seconds: Mapping[str, float]) -> str:
  """Returns the word of the largest part besides compute with more than a tenth; `other` is the
  host's.

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
  part = worst if slow else 'compute'
  return f'{"host" if part == "other" else part}-bound'
