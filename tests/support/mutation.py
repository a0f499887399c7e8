"""A mutation: a small edit of the code that must turn the test below it red."""

from typing import Any


def mutation(old: str, new: str, file: str = '', case: str = '') -> Any:
  """Notes that the test fails when the file that holds the old text reads the new one there.

    @mutation('old text', 'new text')
    def test_...():

  As a decorator it speaks of that test; as a statement of the module, of any test of the file. It
  does nothing by itself: `python -m tests.mutations` reads it from the source, applies the edit to
  a copy and runs the test there.

  Args:
    old: text of which the file has one.
    new: what stands there instead.
    file: the file to edit, from the root of the repository; by default the one of bertjax, configs
      and launch that holds the old text.
    case: of a parametrized test, the id of the case that fails.
  """
  del old, new, file, case
  return lambda test: test
