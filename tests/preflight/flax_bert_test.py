"""The anchor of docs/tpu.md: it needs a transformers that the tests do not have."""

import pytest

from bertjax.errors import UserError
from bertjax.preflight import flax_bert


def test_a_transformers_without_flax_is_refused_with_the_remedy():
  with pytest.raises(UserError, match='pip install transformers==4.57.6'):
    flax_bert.main()
