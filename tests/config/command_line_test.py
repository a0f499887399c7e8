"""What commands say of their flags: of keys of the config, a config file that fails, --help."""

import os
import re
import signal
import subprocess
import sys

import forks
import pytest
from mutation import mutation

from bertjax import dotted, synonyms
from bertjax.config import command_line
from bertjax.vocab.train import TRAINERS

BERT = '--config=configs/bert.py:test'
WRONG = """
import configs.bert


def get_config():
  return configs.bert.get_confg('test')
"""
SLOW = """
import time


def get_config():
  print('ready', flush=True)
  time.sleep(60)
"""


def started(module: str, *arguments: str) -> subprocess.Popen:
  return subprocess.Popen(
    [sys.executable, '-m', f'bertjax.{module}', *arguments], cwd=command_line.FOLDER.parent,
    text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
  )  # fmt: skip


def ended(module: str, *arguments: str) -> subprocess.CompletedProcess:
  return forks.run(f'bertjax.{module}', *arguments, cwd=command_line.FOLDER.parent)


def said(*arguments: str) -> str:
  """What a recipe that is refused says."""
  done = ended('recipe', *arguments)
  assert done.returncode == 1
  return done.stderr


@mutation('  if late:\n', '  if False:\n', file='tests/support/forks.py')
def test_a_fork_refuses_variables_that_were_read_before_it():
  with pytest.raises(ValueError, match='JAX_ENABLE_X64 would not be read again'):
    forks.run('bertjax.recipe', env=dict(os.environ, JAX_ENABLE_X64='1'))


@mutation('if _of_the_file(path, error):', 'if False:')
def test_a_config_file_that_fails_keeps_its_traceback(tmp_path):
  (tmp_path / 'mine.py').write_text(WRONG)
  error = said(f'--config={tmp_path}/mine.py', '--config.total_steps=5')
  assert error.count('Traceback') == 1 and 'get_confg(' in error
  assert "module 'configs.bert' has no attribute 'get_confg'" in error


@pytest.mark.parametrize(
  'flag, line',
  [
    ('total_step=5', "key config.total_step: config has batch_size.*; did you mean 'total_steps'"),
    ('model.mix_decay=1', 'config.model.mix_decay was removed in 0.2, remove it: '),
    ('evals.zz.file=x', 'no key config.evals.zz.file: config.evals has held_out, '),
    ('evals.heldout.every=1', "config.evals has .*; did you mean 'held_out'"),
    ('evals.fil_mask.language=x', "config.evals has .*; did you mean 'fill_mask'"),
    ('phases.phase1.lenght=9', "config.phases.phase1 has batch_size, .*; did you mean 'length'"),
    ('learning_rate=1e-4', 'config has .*; here it is config.optimizer.schedule.peak'),
    ('phases.phase1.num_hidden_layers=2', '; here it is config.model.layers'),
    ('data.mask.name=xlm', "config.data.mask: expected one of .*, got 'rule'"),
    ('total_steps=1e6', "config.total_steps: expected an integer such as 1000000, got '1e6'"),
    ('epochs=few', "--config.epochs: expected a number such as 0.01, got 'few'"),
    ('remap_vocab=2', "--config.remap_vocab: expected true or false, got '2'"),
  ],
)
@mutation('if found := _VALUE.fullmatch(said):', 'if False and (found := _VALUE.match(said)):')
@mutation('if found := _unknown(path, argv):', "if found := '':")
@mutation('found.append(config)', 'found.append({})')
def test_a_flag_that_the_config_cannot_take_is_one_line(flag, line):
  error = said(BERT, f'--config.{flag}')
  assert len(error.splitlines()) == 1 and re.search(line, error), error


@pytest.mark.parametrize(
  'arguments, line',
  [
    (('--config=configs/bert.py:tny',), "unknown size 'tny', .*; did you mean 'tiny'"),
    (('--config=configs/brt.py',), "brt.py: there is no such file; did you mean 'configs/bert.py'"),
    ((BERT, '--unverifed', '--config.seed=3'), "flag --unverifed; did you mean 'unverified'"),
    ((BERT, '--per_device_train_batch_size=8'), 'here it is --config.batch_size, rows of a step'),
    ((BERT, '--data.store=x'), 'flag --data.store; here it is --config.data.store'),
    (('--config=configs/roberta.py:tiny', '--config.phases.zz.length=1'), 'phases has none$'),
    ((), 'bertjax.recipe: expected --config: see --help'),
    ((BERT, 'seed=3'), 'expected flags alone, got seed=3'),
  ],
)
@mutation('if found := _MISTAKE.search(said):', 'if False and (found := _MISTAKE.search(said)):')
@mutation('main(), argv, flags_parser=parse)', 'main(), argv)')
def test_what_the_flags_lack_is_one_line(arguments, line):
  error = said(*arguments)
  assert len(error.splitlines()) == 1 and re.search(line, error), error


@mutation("'optimizer.schedule.peak':", "'optimizer.peak':", file='bertjax/synonyms.py')
def test_what_others_call_a_key_leads_to_one_that_there_is():
  files = ('bert.py:test', 'finetune/text.py', 'finetune/squad.py')
  configs = [command_line.load(f'configs/{name}') for name in files]
  keys = {key for config in configs for key in dotted.flat(config.to_dict())}
  assert {ours.partition(',')[0] for ours in synonyms.NAMES} <= keys


@mutation('if rest[1:] and not known_only:', 'if False:')
@pytest.mark.parametrize('module', ['vocab', 'predict'])
def test_a_command_refuses_a_word_that_is_no_flag(module, tmp_path):
  flags = dict(vocab=['--input=x', f'--output={tmp_path}/v', '--size=300'], predict=['--workdir=x'])
  done = ended(module, *flags[module], 'stray')
  assert (done.returncode, done.stdout) == (1, '')
  assert done.stderr == f'bertjax.{module}: expected flags alone, got stray\n'


@mutation("_apart(argv)[0] if 'config' in flags.FLAGS else None", '_apart(argv)[0]', case='config')
@mutation("nearest(name, flags.FLAGS) or ': see --help'", "': see --help'", case='inptu')
@pytest.mark.parametrize(
  'module, words, said',
  [
    ('prepare', ['--config=x'], 'no flag --config: see --help'),
    ('vocab', ['--inptu=x'], "no flag --inptu; did you mean 'input'?"),
    ('metrics.curves', ['runs/bert', '--outptu=x'], "no flag --outptu; did you mean 'output'?"),
  ],
  ids=['config', 'inptu', 'outptu'],
)
def test_a_flag_that_a_command_does_not_have_is_named(module, words, said):
  done = ended(module, *words)
  *_, last = done.stderr.splitlines()  # Python warns where the server has imported the command
  assert (done.returncode, last) == (1, f'bertjax.{module}: there is {said}')
  assert 'Traceback' not in done.stderr


@mutation('change(flags.FLAGS.read_flags_from_files(sys.argv))', 'change(sys.argv)')
def test_a_file_of_flags_takes_the_same_keys(tmp_path):
  flags = (BERT, '--config.evals.loss.every=7', '--config.seed=5')
  (tmp_path / 'flags').write_text('\n'.join(flags))
  given = (flags, (f'--flagfile={tmp_path}/flags',))
  one, other = (ended('recipe', *each) for each in given)
  assert one.returncode == other.returncode == 0 and one.stdout == other.stdout, other.stderr
  assert '--config.evals.loss.every=7' in one.stdout


@mutation('[*rest[:1], f', '[*rest, f')
@mutation('sys.argv = argv = located(', 'argv = located(')
@mutation("argv[: [*argv, '--'].index('--')]", 'argv')
def test_keys_may_stand_before_the_config(tmp_path):
  first, second = '--config.evals.loss.every=7', '--config.seed=5'
  given = (first, second, '--config', 'configs/bert.py:test')
  one, other = (ended('recipe', *each) for each in ((*given[2:], *given[:2]), given))
  assert one.returncode == other.returncode == 0, one.stderr + other.stderr
  assert one.stdout == other.stdout and first in one.stdout
  (tmp_path / 'flags').write_text('--config=configs/gpt.py:test')
  for more in ([BERT], [first]):
    done = ended('recipe', *more[:1], f'--flagfile={tmp_path}/flags', *more)
    assert done.returncode == 0, done.stderr
    assert f"name='{'bert' if 'bert' in more[0] else 'gpt'}-test'" in done.stdout
  done = ended('recipe', *given[2:], '--', '--config=configs/gpt.py:test')
  assert 'expected flags alone, got --config=configs/gpt.py:test' in done.stderr


@pytest.mark.parametrize('words', [['--config='], ['--config']])
@mutation('path is not None and (said', 'path and (said')
def test_an_empty_config_is_a_line(words):
  done = ended('recipe', BERT, *words)
  assert done.stderr.startswith('bertjax.recipe: --config=: there is no such file: expected one ')


@pytest.mark.parametrize(
  'flag, line',
  [
    ('size=200', "integer >= 300, got '200'"),
    ('sample=0', "a positive integer, got '0'"),
    ('type=word', f"one of {'|'.join(TRAINERS)}, got 'word'"),
  ],
)
@mutation("'.* is not (.*)'", "'is not (.*)'")
def test_a_flag_of_a_command_says_what_it_takes(flag, line):
  done = ended('vocab', '--input=x', '--output=y', '--size=300', f'--{flag}')
  assert done.stderr == f'bertjax.vocab: --{flag.partition("=")[0]}: expected {line}\n'


@pytest.mark.parametrize(
  'module, name', [('recipe', 'none'), ('recipe', 'folder'), ('recipe', 'bytes'), ('embed', 'none')]
)
@mutation('(flags.Error, UnicodeDecodeError) as error:\n    sys', 'KeyError as error:\n    sys')
@mutation("removeprefix('ERROR:: ')", "removeprefix('')")
def test_a_file_of_flags_that_is_none_is_a_line(tmp_path, module, name):
  (tmp_path / 'folder').mkdir()
  (tmp_path / 'bytes').write_bytes(b'\xff\xfe')
  done = ended(module, f'--flagfile={tmp_path}/{name}')
  assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
  assert done.stderr.startswith('bertjax') and 'ERROR' not in done.stderr


def test_a_config_file_that_returns_no_config_is_named(tmp_path):
  (tmp_path / 'mine.py').write_text('def get_config():\n  return 3\n')
  error = said(f'--config={tmp_path}/mine.py')
  assert error.endswith('mine.py: expected a ConfigDict of get_config(), got 3\n'), error


@pytest.mark.parametrize('module', ['recipe', 'sweep'])
@mutation(
  """  with door('bertjax.recipe'):
    command_line.run(""",
  """  command_line.keys_help(sys.argv)
  with door('bertjax.recipe'):
    command_line.run(""",
  case='recipe',
)
def test_help_reads_the_config_and_ctrl_c_ends_it_in_one_line(module, tmp_path):
  (tmp_path / 'slow.py').write_text(SLOW)
  with started(module, f'--config={tmp_path}/slow.py', '--help') as process:
    assert process.stdout and process.stdout.readline() == 'ready\n'
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=60)[1]
  assert error.split('\n')[-2:] == [f'bertjax.{module}: interrupted', ''], error
  assert 'Traceback' not in error


@mutation("if 'config' in flags.FLAGS:", 'if False:', file='bertjax/config/command_line.py')
def test_the_help_of_a_sweep_has_the_keys_of_the_config():
  done = ended('sweep', '--help')
  assert '  --config.total_steps=1000000\n' in done.stdout


LOUD = """
import logging, warnings
from bertjax import errors
from bertjax.config import command_line
def main():
  logging.getLogger('bertjax').info('of a file')
  errors.warn('this is slower')
  warnings.warn('of a package')
  for function in ('jit_a', 'jit_b'):
    warnings.warn(f"no room for '{function}'")
command_line.run(main, 'prog')
"""


@mutation('  app.call_after_init(for_people)', '  pass')
def test_so_are_those_of_prepare(tmp_path):
  (tmp_path / 'a.md').write_text('text')
  (tmp_path / 'a.jsonl').write_text('{"text": "a"}')
  special = '[PAD] [UNK] [CLS] [SEP] [MASK] a'.split()
  (tmp_path / 'vocab.txt').write_text('\n'.join(special))
  flags = (f'--input={tmp_path}/', f'--vocab={tmp_path}/vocab.txt', f'--output={tmp_path}/s')
  done = ended('prepare', *flags, '--workers=1')
  assert done.returncode == 0
  assert done.stderr.startswith(f'WARNING: {tmp_path}: 1 file left out, for want of a name')


BROKEN = """
from bertjax import errors
from bertjax.config import command_line
def main():
  raise errors.UserError('gone')
with errors.door('prog'):
  command_line.run(main, 'prog')
"""


@mutation("the error below', exc_info=True)", "the error below')", file='bertjax/errors.py')
def test_an_error_has_its_traceback_where_that_is_asked_for():
  done = subprocess.run(
    [sys.executable, '-c', BROKEN, '--verbosity=1'], cwd=command_line.FOLDER.parent, text=True,
    capture_output=True, check=False,
  )  # fmt: skip
  assert done.returncode == 1 and 'in main' in done.stderr and done.stderr.endswith('prog: gone\n')


@mutation("Formatter('%(levelname)s: %(message)s')", 'Formatter()')
@mutation('    warnings.formatwarning = first\n', '')
@mutation('known = kind in kinds or kinds.add(kind)', 'known = False')
def test_warnings_are_for_people():
  shown = lambda *more: subprocess.run(
    [sys.executable, '-c', LOUD, *more], cwd=command_line.FOLDER.parent, text=True,
    capture_output=True, check=True,
  ).stderr  # fmt: skip
  assert shown() == (
    "WARNING: this is slower\nWARNING: of a package\nWARNING: no room for 'jit_a'\n"
  )
  assert 'of a file' in shown('--verbosity=0') and '<string>:7]' in shown('--verbosity=0')
