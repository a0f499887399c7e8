"""Numbers that the original programs computed, in files beside the repository.

README.md beside the files says what each holds and how it was made; tests that read one skip where
it is absent. The gradients of an original have its parameters' names, so what reads its parameters
reads them too.
"""

import json
import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

# A loss in nats and a hidden state: absolute. A gradient: of the leaf's largest entry.
NLL, HIDDEN, GRADIENT = 5e-6, 5e-6, 1e-5


class Golden(NamedTuple):
  """One file."""

  given: dict[str, Any]  # the sizes, by the original's own names
  found: dict[str, np.ndarray]  # the arrays

  def tree(self, prefix: str, copies: bool = True) -> dict[str, np.ndarray]:
    """Name -> array of what stands under a prefix, and the names that share an array."""
    start = len(prefix) + 1
    tree = {name[start:]: x for name, x in self.found.items() if name.startswith(f'{prefix}/')}
    aliases = self.given.get('aliases', {}) if copies else {}
    return tree | {copy: tree[source] for copy, source in aliases.items()}


def load(shared: pathlib.Path, name: str) -> Golden:
  """The file golden/originals/NAME.npz; skips the test where there is none."""
  file = shared / 'golden' / 'originals' / f'{name}.npz'
  if not file.is_file():
    pytest.skip(f'no {file}')
  found = dict(np.load(file))
  return Golden(json.loads(str(found.pop('config'))), found)


def near(ours: Any, theirs: np.ndarray, tolerance: float, what: str) -> None:
  """Fails where two arrays differ by more than `tolerance`, absolutely."""
  assert np.shape(ours) == theirs.shape, what
  worst = float(np.abs(np.asarray(ours) - theirs).max())
  assert worst <= tolerance, f'{what} is off by {worst:.1e}, allowed {tolerance:.0e}'


def near_gradients(ours: Any, theirs: Any, what: str) -> None:
  """The same of every leaf of two trees; a leaf that has no gradient must have none in both."""
  assert jax.tree.structure(ours) == jax.tree.structure(theirs)
  leaves = {jax.tree_util.keystr(k): x for k, x in jax.tree_util.tree_flatten_with_path(theirs)[0]}
  for (path, got), (name, want) in zip(
    jax.tree_util.tree_flatten_with_path(ours)[0], leaves.items(), strict=True
  ):
    assert jax.tree_util.keystr(path) == name
    # The softmax does not see the bias of keys: both gradients are rounding errors of zero.
    signal = float(np.abs(leaves[name.replace("['key']['bias']", "['query']['bias']")]).max())
    near(got, want, GRADIENT * signal, f'{what}: the gradient of {name}')
