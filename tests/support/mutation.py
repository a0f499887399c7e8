"""A mutation: a small edit of the code that must turn the test below it red."""


def mutation(why: str, file: str, old: str, new: str, case: str = ''):
  """Notes that the test fails when `old`, which `file` holds once, reads `new`.

    @mutation('what the edit breaks', 'bertjax/optim/schedules.py', 'old text', 'new text')
    def test_...():

  As a decorator it speaks of that test; as a statement of the module, of any test of the file. It
  does nothing by itself: `python -m tests.mutations` reads it from the source, applies the edit to
  a copy and runs the test there.

  Args:
    why: what the edit breaks, in a few words, after the part it belongs to: 'pairs: ...'.
    file: the file to edit, from the root of the repository.
    old: the text to replace.
    new: the text that replaces it.
    case: of a parametrized test, the id of the case that fails.
  """
  del why, file, old, new, case
  return lambda test: test
