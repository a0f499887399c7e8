"""Config files as commands take them: where `configs/NAME.py` is, and their keys for --help."""

import functools
import pathlib
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from logging import CRITICAL, WARNING, Formatter, getLogger
from typing import Any

from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags
from ml_collections.config_flags.config_flags import ConfigFileFlagParser

from bertjax import registry, removed, synonyms
from bertjax.cited import Recipe
from bertjax.config import arguments
from bertjax.errors import UserError, nearest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'configs'
_LACKING = re.compile(r'flag --\S+=None: Flag --(\S+) must have a value other than None')
# What absl says of a value -> what was expected.
_EXPECTED = {
  'invalid literal for int.*': 'an integer such as 1000000',
  'could not convert string to float.*': 'a number such as 0.01',
  ".*'Non-boolean .*": 'true or false',
  '.* is not (.*)': r'\1',
  'value should be (one of) <(.*)>': r'\1 \2',
}
_VALUE = re.compile(r'flag --(\S+?)=(.*?): (.*)')
_NO_FLAG = re.compile("Unknown command line flag '(.+?)'")
_KEY = re.compile(r'--?(?:no)?config\.([^=]+)')
_OF_THE_CONFIG = re.compile(r'flag --config=.*?: (?=config\.)')
# ml_collections has what a config file raises as text alone.
_MISTAKE = re.compile(r'^bertjax\.errors\.UserError: (.*)', re.MULTILINE | re.DOTALL)
TRUST = flags.DEFINE_list(
  'trust_code', [], 'Modules that the config of a run (--workdir, init_from, a teacher) may name.'
)
HELP = ('-h', '--h', '-help', '--help', '--helpfull', '--helpshort')


class _Parser(ConfigFileFlagParser):
  """Runs a config file and completes what it returns, so that each key can be given as a flag."""

  def parse(self, path: str) -> Any:
    from bertjax.config import sections  # imports the models: not on the way to --help

    config = super().parse(path)
    if not isinstance(config, ConfigDict):
      return config
    config = config if isinstance(config, Recipe) else Recipe(config)
    # In sys.argv, where `run` has put those of a --flagfile.
    sections.complete(config, [found[1] for each in sys.argv if (found := _KEY.match(each))])
    config.lock()
    return config


def define_config(
  help: str = 'Config file, e.g. configs/bert.py:base', values: flags.FlagValues = flags.FLAGS
) -> flags.FlagHolder:
  """Defines --config=FILE[:ARGUMENT]; --config.KEY=VALUE overrides a key of what it returns."""
  said = f'{help}; override with --config.KEY=VALUE.'
  try:
    values.read_flags_from_files(sys.argv)  # as ml_collections does at once, outside of any door
  except (flags.Error, UnicodeDecodeError) as error:
    sys.exit(f'bertjax: --flagfile: {_wrong(str(error), None)}')
  holder = config_flags.DEFINE_config_file('config', None, said, values)
  values['config'].parser = _Parser('config')
  return holder


def located(argv: list[str]) -> list[str]:
  """Returns the arguments with --config, if there is one, before all others, since its keys are
  flags behind it alone, and its value as a path that can be opened. `configs/NAME.py[:ARGUMENT]`,
  where NAME may have folders, is NAME.py of FOLDER where the current directory has no such file; a
  path of the user's own stays as it is."""
  path, rest = _apart(argv)
  return argv if path is None else [*rest[:1], f'--config={_located(path)}', *rest[1:]]


def for_people() -> None:
  """Shows warnings alone, and not what orbax tells of each file, unless --verbosity is given."""
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)
    kinds: set[str] = set()

    def first(message: Warning | str, *_: Any) -> str:
      kind = str(message).partition("'")[0]  # jax quotes each function that it cannot keep
      known = kind in kinds or kinds.add(kind)
      return '' if known else f'WARNING: {message}\n'

    warnings.formatwarning = first
    # Times, threads and lines of code are for who asks for more than warnings.
    logging.get_absl_handler().setFormatter(Formatter('%(levelname)s: %(message)s'))
    # It raises what it logs: an error would be shown once for each of its threads and tasks.
    logging.get_absl_logger().addFilter(
      lambda record: record.levelno == WARNING or '/site-packages/orbax/' not in record.pathname
    )
    getLogger('asyncio').setLevel(CRITICAL)


def run(
  main: Callable[[], int | None],
  program: str,
  change: Callable[[list[str]], list[str]] = lambda argv: argv,
) -> None:
  """`app.run` of a command, whose main returns the exit code, with its arguments changed; --help,
  the docstring of __main__, has the keys of --config where there is one."""
  command = sys.modules['__main__']
  if 'config' in flags.FLAGS:
    # ml_collections reads them there.
    sys.argv = argv = located(change(flags.FLAGS.read_flags_from_files(sys.argv)))
    command.__doc__ = f'{command.__doc__}{keys_help(argv)}'
  else:
    argv = change(sys.argv)
  if 'workdir' in flags.FLAGS:
    flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS['trust_code'])

  parse = functools.partial(parse_flags, program=program)
  app.run(lambda rest: main(), argv, flags_parser=parse)


def parse_flags(argv: list[str], program: str, known_only: bool = False) -> list[str]:
  """Parses a command's arguments `argv` in `app.run`; what the command says is then shown
  `for_people`. A mistake in them ends `program` with one line. With `known_only` returns those that
  are no flags of the command behind its name."""
  path = _apart(argv)[0] if 'config' in flags.FLAGS else None
  if path is not None and (said := _missing(path)):
    sys.exit(f'{program}: --config={said}')
  try:
    rest = flags.FLAGS(argv, known_only)
  except (flags.Error, UnicodeDecodeError) as error:
    # Not absl's own end, which parses again and finds the keys defined twice.
    sys.exit(f'{program}: {_wrong(str(error), path)}')
  except (AttributeError, KeyError) as error:
    if _of_the_file(path, error):
      raise
    if found := _unknown(path, argv):
      sys.exit(f'{program}: {found}')
    key: object = error
    while isinstance(key, Exception):  # ml_collections raises the one inside the other
      key = key.args[0]
    sys.exit(f'{program}: the config has no key {". ".join(str(key).splitlines())}')
  if rest[1:] and not known_only:
    sys.exit(f'{program}: expected flags alone, got {" ".join(rest[1:])}')
  if path and not isinstance(config := flags.FLAGS['config'].value, ConfigDict):
    sys.exit(f'{program}: {path}: expected a ConfigDict of get_config(), got {config!r}')
  app.call_after_init(for_people)  # absl has its own verbosity first
  registry.TRUSTED.update(TRUST.value)
  if path:
    given = config_flags.get_override_values(flags.FLAGS['config'])
    registry.note_own(flags.FLAGS['config'].value, given)
  return rest


def _wrong(said: str, path: str | None) -> str:
  """Rewrites a message of absl about flags, where our words say more; `path`: that of --config."""
  said = said.removeprefix('ERROR:: ')
  if found := _MISTAKE.search(said):
    return found[1].strip()
  if lacking := _LACKING.findall(said):
    return f'expected {", ".join(f"--{name}" for name in lacking)}: see --help'
  if found := _VALUE.fullmatch(said):
    for theirs, ours in _EXPECTED.items():
      if match := re.fullmatch(theirs, found[3]):
        return f'--{found[1]}: expected {match.expand(ours)}, got {found[2]!r}'
  if found := _NO_FLAG.match(said):
    name, key = found[1], ''
    if path:
      known = not _unknown(path, [f'--config.{name}'])
      key = f'config.{name}' if known else synonyms.ours(name)
    hint = f'; here it is --{key}' if key else nearest(name, flags.FLAGS) or ': see --help'
    return f'there is no flag --{name}{hint}'
  return _OF_THE_CONFIG.sub('', said.strip())


def _of_the_file(path: str | None, error: BaseException) -> bool:
  """Returns whether the config file raised an error, rather than a value set in the config."""
  files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
  return path is not None and path.partition(':')[0] in files


def _unknown(path: str | None, argv: list[str]) -> str:
  """Returns the error for the first --config.KEY that the config lacks; '' if there is none."""
  if not path:
    return ''
  config = load(path)
  for argument in argv:
    whole = argument.lstrip('-').partition('=')[0]
    above, *parts = whole.split('.')
    if above != 'config' or not argument.startswith('-'):
      continue
    found = [config]
    for number, part in enumerate(parts):
      found = [section for section in found if hasattr(section, 'keys')]
      if not found:
        break
      if not any(part in section for section in found):
        removed.refuse(whole)
        known = sorted({key for section in found for key in section})
        made = registry.names_in('bertjax.evals') if above == 'config.evals' else ()
        hint = synonyms.hint(whole) or nearest(part, [*known, *made])
        return f'the config has no key {whole}: {above} has {", ".join(known) or "none"}{hint}'
      found = [section[part] for section in found if part in section]
      if number == 1 and parts[0] == 'phases':
        found.append(config)  # a phase takes the keys of the run
      above = f'{above}.{part}'
  return ''


def keys_help(argv: list[str]) -> str:
  """Returns the keys of the --config of `argv`, or else of configs/bert.py, for --help; '' without
  --help."""
  if not any(argument in HELP for argument in argv):
    return ''
  from bertjax.config import schema  # imports the models: not on the way to a run

  path = _apart(argv)[0] or f'{FOLDER / "bert.py"}'
  shown = [
    f'  --{row.key}={row.value}\n      {row.kind}{f"; {row.meaning}" if row.meaning else ""}'
    for row in schema.listing(load(path), whole=True)
  ]
  return '\n'.join([f'\n\nKeys of {path}, their values there, types and meanings:\n', *shown])


def load(path: str) -> Any:
  """Runs the file of --config=PATH; returns its config, completed. UserError: there is
  none, or what the file raises."""
  if said := _missing(_located(path)):
    raise UserError(said)
  try:
    return _Parser('config').parse(_located(path))
  except UserError as error:  # ml_collections wraps it in a traceback
    raise UserError(_wrong(str(error), None)) from error


def _missing(path: str) -> str:
  """Returns what is said of a config file that is not there; '' where it is."""
  file = path.partition(':')[0]
  if pathlib.Path(file).is_file():
    return ''
  known = sorted(path.relative_to(FOLDER.parent).as_posix() for path in FOLDER.rglob('[!_]*.py'))
  hint = nearest(file, known) or ': expected one such as configs/bert.py'
  return f'{file}: there is no such file{hint}'


def _apart(argv: list[str]) -> tuple[str | None, list[str]]:
  """Returns the value of --config, the last one if there are several, None without one, and the
  other arguments."""
  own = argv[: [*argv, '--'].index('--')]
  rest = arguments.without_flags(own, ['config'], [])
  return arguments.value(own, 'config'), [*rest, *argv[len(own) :]]


def _located(path: str) -> str:
  name, colon, argument = path.partition(':')
  file = FOLDER.parent / name
  if pathlib.Path(name).exists() or FOLDER not in file.parents or not file.exists():
    return path
  return f'{file}{colon}{argument}'
