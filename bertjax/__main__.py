"""Lists the commands: python -m bertjax

What each does is the first line of its module, up to the colon; nothing heavy is imported for it.
"""

import ast
import pathlib
import sys

COMMANDS = (
  'main', 'launch', 'sweep', 'compare', 'replay', 'predict', 'embed', 'generate', 'prepare',
  'vocab', 'recipe', 'convert', 'preflight', 'bench', 'text.fastai', 'metrics.curves',
)  # fmt: skip


def summary(command: str) -> str:
  """Returns the first line of the docstring of `python -m bertjax.COMMAND`, from its source."""
  path = pathlib.Path(__file__).parent.joinpath(*command.split('.'))
  source = path / '__main__.py' if path.is_dir() else path.with_suffix('.py')
  doc = ast.get_docstring(ast.parse(source.read_text(encoding='utf-8'))) or ''
  return doc.splitlines()[0].split(': python -m')[0].rstrip(':.')


def main(argv: list[str]) -> int:
  """Prints the list; any argument but a call for help is a mistake, and returns 1."""
  width = max(map(len, COMMANDS)) + len('python -m bertjax.')
  lines = [f'  {f"python -m bertjax.{c}":{width}}  {summary(c)}' for c in COMMANDS]
  text = '\n'.join(
    ['The commands of bertjax:', '', *lines, '', 'Each prints its flags with --help.']
  )
  if argv and argv[0] not in ('-h', '--help'):
    print(f'python -m bertjax: expected no arguments, got {argv[0]!r}\n\n{text}', file=sys.stderr)
    return 1
  print(text)
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
