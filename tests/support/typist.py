"""Types commands as far as their flags and the keys of their configs go; no file need be there."""

import contextlib
import importlib
import io
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import processes

# Up to what ends a command in a shell, in Markdown and in a sentence.
COMMAND = re.compile(r"python -m (bertjax[\w.]*\w)((?:\\\n|'[^'\n]*'|[^\n`|;&>'])*)")
OF_ARGPARSE = ('bertjax.launch', 'bertjax.metrics.curves', 'bertjax.text.fastai', 'bertjax.bench')
MEANT = dict(N='1000', STEPS='1000', X='1')  # what a reader puts in their place
BERT = '--config=configs/bert.py:base'


def commands(text):
  """(module, arguments, whether it stands in a line of its own) of each command in a text."""
  for found in COMMAND.finditer(text):
    before = text[: found.start()].rpartition('\n')[2]
    whole = before[:2] == '  ' and (not before.strip() or before.endswith('&& '))
    line = re.split(' {3,}', re.sub(r'\\\n\s*', ' ', found[2]))[0]  # its meaning beside it
    try:
      words = shlex.split(line, comments=True)
    except ValueError:  # an apostrophe of prose
      words = []
    words = [word.rstrip(',.:') for word in words if not word.startswith(('[', '.', '"$'))]
    if not whole:  # prose goes on behind it
      first = words[: found[1] in OF_ARGPARSE]
      words = [*first, *(word for word in words[len(first) :] if word.startswith('-'))]
    yield found[1], [_meant(word) for word in words if word != '--help'], whole


def _meant(word):
  flag, equals, value = word.replace('configs/SYSTEM', 'configs/bert').partition('=')
  return BERT if word == '--config=' else f'{flag}{equals}{MEANT.get(value, value)}'


def said(cases):
  """Returns what each of the (module, arguments) says, '' if nothing."""
  done = subprocess.run(
    [sys.executable, __file__], input=json.dumps(cases), capture_output=True, text=True,
    cwd=processes.ROOT, env=processes.environment() | dict(PYTHONPATH='.:tests/support'),
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout)


def _type(module, argv):
  from absl import flags
  from ml_collections import config_flags

  from bertjax.config import command_line
  from bertjax.train import facts, resolve

  if module == 'bertjax.bench' and argv:
    module, argv = f'bertjax.tools.bench.{argv[0]}', argv[1:]
  path = pathlib.Path(*module.split('.'))
  importlib.import_module(f'{module}.__main__' if (path / '__main__.py').exists() else module)
  if module in OF_ARGPARSE:
    return
  sys.argv = [module, *argv]
  command_line.parse_flags(command_line.located(sys.argv), module)
  if 'config' in flags.FLAGS and (config := flags.FLAGS['config'].value):
    given = config_flags.get_override_values(flags.FLAGS['config'])
    resolve.resolve(config, facts.Facts(given))


def _apart(module, argv):
  """Returns what is said in a process of its own, since flags are defined once."""
  read, write = os.pipe()
  if not os.fork():
    told = ''
    try:
      with contextlib.redirect_stdout(io.StringIO()):
        _type(module, argv)
    except BaseException as error:
      told = f'{type(error).__name__}: {error}'
    finally:
      os.write(write, told[:4000].encode())
      os._exit(0)
  os.close(write)
  os.wait()
  with open(read, 'rb') as file:
    return file.read().decode()


if __name__ == '__main__':
  from bertjax import registry
  from bertjax.train import resolve  # noqa: F401  what each of them would import, like the choices

  for package in [name for name in registry.EXPORTS if not name.endswith('trackers')]:
    for choice in registry.names_in(package):
      importlib.import_module(f'{package}.{choice}')
  json.dump([_apart(*case) for case in json.load(sys.stdin)], sys.stdout)
