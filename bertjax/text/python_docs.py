"""English that every CPython carries: its language reference and the docstrings of its library.

Nothing is downloaded and no module is executed: the docstrings are parsed out of the source files.
Versions of Python differ in their text, so a store names the version.
"""

import ast
import itertools
import pathlib
import re
import sysconfig
from collections.abc import Iterator

_EXCLUDED = frozenset(
  ('site-packages', 'dist-packages', 'test', 'tests', 'idle_test', 'idlelib', '__pycache__')
)
_MARKUP = (
  (re.compile(r':[a-z:]+:`[~!]?([^`<]+?)(?:\s*<[^`>]*>)?`'), r'\1'),  # :func:`name`
  (re.compile(r'``?([^`]+)``?'), r'\1'),
  (re.compile(r"`([^`']+)'"), r'\1'),  # `name'
  (re.compile(r'(?<![\w*])\*{1,2}([^*\s](?:[^*]*[^*\s])?)\*{1,2}(?![\w*])'), r'\1'),
)
_BULLET = re.compile(r'^(?:[-*+]|\d+[.)])\s+')
_RULE = re.compile(r'[-=*~^+#|\s]{3,}')
_CODE = re.compile(r'\s*(?:>>>|\.\.\.\s|\.\.\s|::|:\w+:|[$%#] |\w+\s*::?=)')


def documents() -> Iterator[bytes]:
  """Yields the topics of `pydoc`, then the library's modules, each in the order of its name. A
  document has a paragraph a line, reflowed, without markup and code."""
  from pydoc_data.topics import topics  # half a megabyte

  root = pathlib.Path(sysconfig.get_paths()['stdlib'])
  paths = (p for p in sorted(root.rglob('*.py')) if _EXCLUDED.isdisjoint(p.relative_to(root).parts))
  for texts in itertools.chain(
    ([topics[name]] for name in sorted(topics)), map(_docstrings, paths)
  ):
    if paragraphs := [paragraph for text in texts for paragraph in _paragraphs(text)]:
      yield '\n'.join(paragraphs).encode()


def _docstrings(path: pathlib.Path) -> Iterator[str]:
  try:
    tree = ast.parse(path.read_bytes())
  except SyntaxError:
    return  # a template or a sample of broken code, part of the library on purpose
  for node in ast.walk(tree):
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
      yield ast.get_docstring(node) or ''


def _paragraphs(text: str) -> Iterator[str]:
  """Yields the prose of a docstring, hard line breaks undone: what has at least three words, and
  more letters and spaces than three quarters of the characters."""
  indent = lambda line: len(line) - len(line.lstrip())
  for block in re.split(r'\n\s*\n', text):
    lines = [line for line in block.expandtabs().split('\n') if not _RULE.fullmatch(line)]
    joined: list[str] = []
    for line in lines:
      starts = _BULLET.match(line.strip())
      if joined and not starts and indent(line) >= indent(lines[0]):
        joined[-1] += ' ' + line.strip()
      else:
        joined.append(_BULLET.sub('', line.strip()))
    for paragraph in [] if any(_CODE.match(line) for line in lines) else joined:
      for pattern, replacement in _MARKUP:
        paragraph = pattern.sub(replacement, paragraph)
      paragraph = re.sub(r'\s+', ' ', paragraph).strip()
      letters = sum(c.isalpha() or c == ' ' for c in paragraph)
      if paragraph.count(' ') >= 2 and letters > 0.75 * len(paragraph):
        yield paragraph
