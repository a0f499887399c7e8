"""Flags of a command line before absl reads them."""

import pytest
from mutation import mutation

from bertjax.config import arguments


@mutation("else name.lstrip('-') == flag", 'else True')
@mutation("text.lower() in ('true', 't', '1')", 'True')
@mutation("name.startswith('-') and ", '')
@pytest.mark.parametrize(
  'words, on',
  [
    ([], False),
    (['--evaluate'], True),
    (['-evaluate', '--step=3'], True),
    (['--evaluate=true'], True),
    (['--evaluate=False'], False),
    (['--evaluate', '--noevaluate'], False),
    (['--noevaluate', '--evaluate=1'], True),
    (['--step', 'evaluate'], False),
  ],
)
def test_the_last_word_switches_a_flag(words, on):
  assert arguments.switched(['main', *words], 'evaluate') == on
