"""Parameters in the place of others."""

import numpy as np
import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.sources import subtrees


def layers(*names: str) -> dict:
  return dict(layers={name: dict(kernel=np.zeros(2)) for name in names})


@mutation('sorted(names)[:3]', 'sorted(names)')
@mutation('if theirs != ours:', 'if theirs < ours:', file='bertjax/sources/subtrees.py')
def test_parameters_that_one_side_lacks_are_named():
  """As of a Longformer with global tokens, where the run says that it has none."""
  wide = layers('query', 'global_key', 'global_query', 'global_value', 'global_out')
  said = (
    r'^config.init_from: hf:x:encoder has the parameters layers/global_key/kernel, '
    'layers/global_out/kernel, layers/global_query/kernel and 1 more that the model lacks, and '
    'lacks none that the model has: leave out what config.model says'
  )
  with pytest.raises(UserError, match=said):
    subtrees.taken(wide, layers('query'), (), 'hf:x:encoder', None)
  with pytest.raises(UserError, match='has none that the model lacks, and lacks the parameters l'):
    subtrees.taken(layers('query'), layers('key', 'query'), (), 'hf:x:encoder', None)
