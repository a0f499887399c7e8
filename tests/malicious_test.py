"""What comes from elsewhere, a store, a checkpoint, a tokenizer, a flag, cannot reach out of its
place, hang the program or run anything: it is refused."""

import contextlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import time

import numpy as np
import processes
import pytest
import used_models
from ml_collections import ConfigDict
from mutation import mutation
from small_stores import write_store
from tiers import in_tiers
from toy_store import on_disk, recipe

import bertjax
from bertjax import models, registry, replay
from bertjax.checkpoint import manifest, resume
from bertjax.errors import UserError
from bertjax.examples.examples import make_examples
from bertjax.export import exporting
from bertjax.machine import checksums
from bertjax.metrics.progress import Progress
from bertjax.sources import init_from
from bertjax.store import cache
from bertjax.store import ensure as ensure_store
from bertjax.store.reader import open_store
from bertjax.train import loop as train_loop
from bertjax.vocab.vocabulary import load_vocabulary


class Runs:
  """A pickle that makes a file when it is read."""

  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return open, (str(self.path), 'w')


def toy_store(path):
  special = dict(pad=0, unk=1, cls=2, sep=3, mask=4)
  write_store(path, [[[5, 6], [7]]] * 9, dict(type='toy', size=10, sha256='0', special=special))


def sign(file, body):
  """Whoever makes up a store or a checkpoint can sign it too."""
  file.write_text(json.dumps(dict(body, sha256=checksums.digest(body))))


@mutation('  if outside:', '  if False:')
@pytest.mark.parametrize('name', ['columns/../../outside.npy', '/etc/passwd'])
def test_a_plan_stays_within_its_directory(tmp_path, name):
  (tmp_path / 'outside.npy').write_bytes(b'secret')
  (tmp_path / 'plan').mkdir()
  files = {name: (6, checksums.of_file(tmp_path / 'outside.npy'))}
  sign(tmp_path / 'plan' / cache.RECORD, dict(identity={}, figures={}, files=files))
  assert 'which is outside of the plan' in cache.fault(tmp_path / 'plan')


@mutation('if name not in found:', 'if not (directory / name).exists():')
@pytest.mark.parametrize('name', ['state/../../outside', '/etc/passwd'])
def test_a_checkpoint_stays_within_its_directory(tmp_path, name):
  (tmp_path / 'outside').write_bytes(b'secret')
  (tmp_path / '6').mkdir()
  files = {name: [6, checksums.of_file(tmp_path / 'outside')]}
  sign(tmp_path / '6' / manifest.NAME, dict(format=manifest.FORMAT, files=files))
  with pytest.raises(manifest.Damaged, match='is missing'):
    manifest.verify(tmp_path / '6')


@pytest.mark.parametrize('name', ['counts.npy', 'tokens-00000.npy', 'sentences.npy'])
def test_an_array_of_a_store_runs_nothing(tmp_path, name):
  toy_store(tmp_path / 'store')
  file = tmp_path / 'store' / name
  size = file.stat().st_size
  np.save(file, np.array([Runs(tmp_path / 'pwned')], object), allow_pickle=True)
  plain = file.read_bytes()
  for body in (plain, pickle.dumps(Runs(tmp_path / 'pwned'))):
    file.write_bytes(body.ljust(size, b'\0')[: max(size, len(body))])
    with pytest.raises(ValueError):  # UserError is one
      open_store(tmp_path / 'store')
  assert not (tmp_path / 'pwned').exists()


@pytest.mark.parametrize('name', ['length.npy', 'a_start.npy'])
def test_a_column_of_a_plan_runs_nothing(tmp_path, name):
  store = on_disk(tmp_path / 'store')
  plan = make_examples(store, recipe(), 64, 0).plan
  np.save(plan / name, np.array([Runs(tmp_path / 'pwned')], object), allow_pickle=True)
  record = json.loads((plan / cache.RECORD).read_bytes())
  record['files'][name] = [(plan / name).stat().st_size, checksums.of_file(plan / name)]
  record.pop('sha256')
  sign(plan / cache.RECORD, record)
  with pytest.raises(ValueError, match='Python objects'):
    make_examples(store, recipe(), 64, 0)
  assert not (tmp_path / 'pwned').exists()


def tokenizer_json(path, pattern='x', ids=(0, 1, 2, 3, 4, 5)):
  """A tokenizer.json of six pieces, which cuts text by a regular expression."""
  pieces = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'a']
  split = dict(type='Split', pattern=dict(Regex=pattern), behavior='Isolated', invert=False)
  model = dict(
    type='WordPiece', unk_token='[UNK]', continuing_subword_prefix='##',
    max_input_chars_per_word=100, vocab=dict(zip(pieces, ids, strict=True)),
  )  # fmt: skip
  spec = dict.fromkeys(('truncation', 'padding', 'normalizer', 'post_processor', 'decoder'))
  spec |= dict(version='1.0', added_tokens=[], pre_tokenizer=split, model=model)
  (path / 'tokenizer.json').write_text(json.dumps(spec))
  return path / 'tokenizer.json'


@pytest.mark.parametrize('pattern', ['(a+)+$', 'a{1,9}+b', '.*.*.*.*x'])
def test_a_runaway_pattern_ends(tmp_path, pattern):
  began = time.monotonic()
  with contextlib.suppress(UserError):
    load_vocabulary(tokenizer_json(tmp_path, pattern)).encode_batch(['a' * 60 + '!'])
  assert time.monotonic() - began < 5


@mutation("if type(error).__name__ != 'PanicException':", 'if True:')
@pytest.mark.parametrize('encode', ['encode_batch', 'encode_flat', 'encode_spans'])
def test_a_pattern_that_gives_up_is_an_error_that_names_its_file(tmp_path, encode):
  """Also where a worker of prepare meets it, which sends its error through a pipe."""
  vocabulary = load_vocabulary(tokenizer_json(tmp_path, '(a+)+$'))
  with pytest.raises(UserError, match='tokenizer.json gives up on a text: .*name another') as found:
    getattr(vocabulary, encode)(['a' * 60 + '!'])
  assert str(pickle.loads(pickle.dumps(found.value))) == str(found.value)


@mutation('if index[last] >= MOST:', 'if False:', case='16777216')
@pytest.mark.parametrize('last', [2**31, 2**24])
def test_an_id_beyond_all_vocabularies_is_refused_before_memory_is_taken(tmp_path, last):
  file = tokenizer_json(tmp_path, ids=(0, 1, 2, 3, 4, last))
  with pytest.raises(UserError, match=f"the id of 'a' is {last}: expected ids below"):
    load_vocabulary(file)
  (tmp_path / 'bpe').mkdir()
  (tmp_path / 'bpe/vocab.json').write_text(json.dumps({'<|endoftext|>': 0, 'a': last}))
  (tmp_path / 'bpe/merges.txt').write_text('#version: 0.2\n')
  with pytest.raises(UserError, match=f"the id of 'a' is {last}"):
    load_vocabulary(tmp_path / 'bpe')


NASTY = 'a b\'c"d;touch pwned $(touch pwned) `touch pwned` | touch pwned & > pwned'


@mutation('children.run([', "children.run(['sh', '-c', ' '.join(arguments)] if arguments else [")
def test_flags_are_words_and_not_a_line_of_a_shell(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv('PYTHONPATH', str(ensure_store.pathlib.Path(__file__).parents[1]))
  with pytest.raises(UserError, match='bertjax.prepare failed with exit status 1'):
    ensure_store._run(
      'bertjax.prepare', dict(input=NASTY, vocab=NASTY, output=tmp_path / NASTY[:5])
    )
  assert not (tmp_path / 'pwned').exists()


@pytest.fixture(scope='module')
def honest(tmp_path_factory):
  return used_models.make(tmp_path_factory.mktemp('honest'), 'bert').workdir


class Fetched:
  """A run that somebody fetched, with a module beside it, in the current directory.

  Attributes:
    run: its workdir.
    module: its name; to import it makes a file `.ran`; it is BERT's otherwise.
  """

  def __init__(self, honest, place, name):
    self.place, self.run, self.module = place, place / 'run', f'{name}.mod'
    shutil.copytree(honest, self.run)
    (place / name).mkdir()
    code = "from bertjax.models.bert import MODEL\nopen(__file__ + '.ran', 'w').close()\n"
    (place / name / 'mod.py').write_text(code)

  def name_it(self, key, form='{}'):
    """Has config.json name the module, or another text around its name."""
    file = self.run / 'config.json'
    record = json.loads(file.read_bytes())
    *sections, last = key.split('.')
    section = record['config']
    for each in sections:
      section = section.setdefault(each, {})
    section[last] = [self.module] if key == 'trackers' else form.format(self.module)
    file.write_text(json.dumps(record))

  @property
  def ran(self):
    return any(self.place.rglob('*.ran')) or self.module in sys.modules


@pytest.fixture
def fetched(honest, tmp_path, monkeypatch, request):
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(tmp_path)  # as `python -m` has it
  for name, kept in (('_ELSEWHERE', {}), ('_OWN', set()), ('TRUSTED', set())):
    monkeypatch.setattr(registry, name, kept)
  found = Fetched(honest, tmp_path, f'evil{abs(hash(request.node.name))}')
  yield found
  sys.modules.pop(found.module, None)


CHECKED_FIRST = (
  'model.name', 'objective.name', 'data.reader', 'data.plan.name', 'data.mask.name', 'trackers',
  'evals.held_out.type', 'evals.another.type', 'optimizer.name',
)  # fmt: skip
KEYS = (
  *CHECKED_FIRST, 'phases.one.model.name', 'phases.one.objective.name', 'model.family',
  'phases.one.evals.held_out.type', 'objective.teacher.model.name', 'data.task.name',
)  # fmt: skip
USES = dict(
  load=lambda run: bertjax.Model.load(run),
  convert=lambda run: exporting.export(run, run.parent / 'out'),
  replay=lambda run: replay.replay(str(run), 1, Progress(1)),
  evaluate=lambda run: train_loop.evaluate(resume.stored_config(run), str(run)),
  train=lambda run: train_loop.run(resume.stored_config(run), str(run)),
  source=lambda run: models.build(ConfigDict(init_from.open_source(str(run)).model)),
)
READS_THE_MODEL = ('load', 'convert', 'source')  # alone


@mutation('  registry.note_elsewhere(found, str(path))\n', '')
@pytest.mark.parametrize('key', in_tiers(KEYS, KEYS[2:]))
def test_a_module_that_a_run_names_does_not_run(fetched, key):
  fetched.name_it(key)
  for name, use in USES.items():
    try:
      use(fetched.run)
      assert name in READS_THE_MODEL and key != 'model.name', name
    except UserError as error:
      refused = f'names the module {fetched.module!r}' in str(error)
      assert refused or name in READS_THE_MODEL or key not in CHECKED_FIRST, f'{name}: {error}'
    assert not fetched.ran, name


SEEN = 'names the module'
HIDDEN = 'finds outside of the current directory'


@mutation('hidden = _here() if place else []', 'hidden = []', case='trusted')
@mutation('    registry.note_own(command_line.load(config))', '    pass', case='config')
@pytest.mark.parametrize(
  'command, trusts, path, said',
  [
    ('predict --text=w9', True, False, HIDDEN),
    ('predict --text=w9', True, True, ''),
    ('main --evaluate', False, True, SEEN),
    ('main --evaluate --config=own.py', False, False, 'no data: set config.data.store'),
  ],
  ids=['trusted', 'path', 'evaluate', 'config'],
)
def test_commands_in_the_directory_that_was_fetched(fetched, command, trusts, path, said):
  """As `python -m` runs them there, which puts the current directory before all others."""
  fetched.name_it('model.name')
  own = f"""
    from configs import bert
    def get_config():
      c = bert.get_config('test')
      c.model.name = {fetched.module!r}
      return c
  """
  (fetched.place / 'own.py').write_text(textwrap.dedent(own))
  name, *flags = command.split()
  flags += [f'--trust_code=other,{fetched.module}'] if trusts else []
  more = [str(fetched.place)] if path else ['']  # an empty one is the current directory too
  env = processes.environment()
  env |= dict(PYTHONPATH=os.pathsep.join([str(processes.ROOT), *more]))
  done = subprocess.run(
    [sys.executable, '-m', f'bertjax.{name}', '--workdir=run', *flags],
    cwd=fetched.place, env=env, capture_output=True, text=True, timeout=300, check=False,
  )  # fmt: skip
  assert (done.returncode == 0) == (not said) and said in done.stderr, done.stderr
  assert 'Traceback' not in done.stderr and fetched.ran == (said not in (SEEN, HIDDEN))


def test_a_module_of_the_user_needs_no_trust(fetched):
  """A run is resumed, or begins with another one, by a config that names the module itself."""
  fetched.name_it('model.name')
  fetched.name_it('data.module', 'run')
  config = ConfigDict(dict(model=dict(name=fetched.module), init_from='run', evals={}))
  registry.note_own(config)
  assert bertjax.Model.load(fetched.run).fill(['w9 [MASK]']) and fetched.ran
  with pytest.raises(UserError, match="names the module 'run'"):
    registry.load('run', 'config.data.module')  # init_from is no module


def test_what_a_config_has_from_a_directory_is_not_the_users(fetched):
  fetched.name_it('model.name')
  config = resume.stored_config(fetched.run)
  registry.note_own(config)
  with pytest.raises(UserError, match=SEEN):
    bertjax.Model.load(fetched.run)
  registry.note_own(config, {'model.name': fetched.module})  # --config.model.name
  assert bertjax.Model.load(fetched.run) and fetched.ran


@pytest.mark.parametrize('name', ['json.tool', 'jax.numpy'])
def test_modules_that_are_installed_or_imported_need_trust_too(fetched, name):
  fetched.module = name
  fetched.name_it('model.name')
  with pytest.raises(UserError, match=SEEN):
    bertjax.Model.load(fetched.run)


@pytest.mark.parametrize(
  'name', ['../evil.mod', '.mod', 'run.', 'a..b', '/tmp/evil.mod', 'evil mod.x']
)
def test_paths_and_relative_names_are_no_modules(name):
  with pytest.raises(UserError, match='config.x: expected a module .*: that is no name of a mod'):
    registry.find('bertjax.models', name, 'config.x')


@mutation("[registry.check(name, f'config.data.{key}') for key, name in code.items()]", '[]')
@pytest.mark.parametrize('key, form', [('module', '{}'), ('segmenter', '{}:cut')])
def test_code_that_makes_a_store_of_a_run_is_trusted_first(fetched, monkeypatch, key, form):
  commands = []
  run = lambda command, env: commands.append(command) or 1
  monkeypatch.setattr(ensure_store.children, 'run', run)
  fetched.name_it(f'data.{key}', form)
  data = resume.stored_config('run').data
  for prepare in ('bertjax.prepare', 'bertjax.vocab'):
    with pytest.raises(UserError, match=f'config.data.{key}: run/config.json {SEEN}'):
      ensure_store._run(prepare, {key: data[key]})
  assert not commands
  registry.TRUSTED.add(fetched.module)
  with pytest.raises(UserError, match='exit status 1'):
    ensure_store._run('bertjax.prepare', {key: data[key]})
  assert commands[0][1:4] == ['-P', '-m', 'bertjax.prepare']


@mutation(" if name != 'capitals'}", '}')
def test_capitals_of_a_run_are_no_code(fetched, monkeypatch):
  monkeypatch.setattr(ensure_store.children, 'run', lambda command, env: 1)
  fetched.module = 'capitals'
  fetched.name_it('data.segmenter')
  with pytest.raises(UserError, match='exit status 1'):
    ensure_store._run('bertjax.prepare', dict(segmenter=resume.stored_config('run').data.segmenter))
