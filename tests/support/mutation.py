"""A mutation: a small edit of the code that must turn the test below it red."""

from typing import Any


def mutation(why: str, *edit: str, file: str = '', case: str = '') -> Any:
  """Notes that the test fails when a file, which holds `old` once, reads `new` there.

    MUTATED = 'bertjax/optim/schedules.py'

    @mutation('what the edit breaks', 'old text', 'new text')
    def test_...():

  As a decorator it speaks of that test; as a statement of the module, of any test of the file. It
  does nothing by itself: `python -m tests.mutations` reads it from the source, applies the edit to
  a copy and runs the test there.

  Args:
    why: what the edit breaks, in a few words, after the part it belongs to: 'pairs: ...'.
    *edit: old and new text; or file, old and new.
    file: the file to edit, from the root of the repository; by default MUTATED of the module.
    case: of a parametrized test, the id of the case that fails.
  """
  del why, edit, file, case
  return lambda test: test
