"""Which configs a workdir accepts when a run is resumed."""

import copy
import json
import os
import shutil
import socket

import pytest
from mutation import mutation

from bertjax.checkpoint import reading, resume
from bertjax.checkpoint.may_differ import MAY_DIFFER
from bertjax.config import sections
from bertjax.errors import UserError
from bertjax.train import resolve
from bertjax.vocab import kept
from bertjax.vocab.vocabulary import load_vocabulary
from configs import bert
from configs.finetune import glue

FACTS = dict(ids=211, pad=0)


def given():
  """bert.py:test, completed as the command line does."""
  config = bert.get_config('test')
  sections.complete(config)
  return config


@pytest.fixture
def workdir(tmp_path):
  """A workdir that holds a run of bert.py:test."""
  config = given()
  check(tmp_path, config)
  resume.claim_workdir(tmp_path, resolved(config), FACTS)
  return tmp_path


def resolved(config):
  """As it is with the facts: the store tells how many ids there are."""
  config = config.copy_and_resolve_references()
  config.model.vocab_size = config.model.vocab_size or 211
  return config


def check(workdir, config, names=()):
  """Compares a config as a run does that has resolved it."""
  record = resume.stored(workdir)
  if record:
    config = copy.deepcopy(config)
    config.total_steps = record['config']['total_steps']
  return resume.compare(workdir, record, resolved(config), names)


def changed_batches(workdir, config):
  changed = resume.changes(resume.stored(workdir), resolved(config), 12)
  return resume.changed_batches(changed)


def test_a_new_workdir_is_not_claimed_by_a_check(tmp_path):
  check(tmp_path, given())
  assert not list(tmp_path.iterdir())


@mutation('config=whole, facts=facts, history=changed)', 'config=whole, facts={}, history=changed)')
def test_the_workdir_describes_the_run_by_itself(workdir):
  config = given()
  stored = resume.stored_config(workdir)
  assert stored.to_json() == resolved(config).to_json()
  assert stored.sharding_rules == config.sharding_rules  # tuples again
  assert resume.stored(workdir)['facts'] == FACTS
  config.model.vocab_size = 211
  check(workdir, config)
  config.model.vocab_size = 212
  with pytest.raises(ValueError, match='config.model.vocab_size: expected 211, got 212'):
    check(workdir, config)


def test_what_an_evaluation_changes_is_said(workdir):
  stored = resume.stored_config(workdir)
  assert resume.overrides(workdir, stored) == []
  stored.evals.held_out.examples = 5
  assert resume.overrides(workdir, stored) == [
    'config.evals.held_out.examples: 5, in training 1024'
  ]


@pytest.mark.parametrize(
  'text, version',
  [
    ('{"name": "bert-test", "seed": 0}', 1),
    ('{"format": 10, "config": {}, "given": {}}', 10),
    ('{"format": 99, "config": {}}', 99),
  ],  # fmt: skip
)
def test_a_run_of_another_format_is_refused_with_the_remedy(tmp_path, text, version):
  (tmp_path / 'config.json').write_text(text)
  for call in (lambda: check(tmp_path, given()), lambda: resume.stored_config(tmp_path)):
    with pytest.raises(
      ValueError, match=f'format {version}, .* reads format {resume.FORMAT}: .*--workdir'
    ):
      call()


def test_the_run_that_holds_a_workdir_is_named(tmp_path):
  with resume.alone_in(tmp_path):
    with (
      pytest.raises(ValueError, match=f'process {os.getpid()} on {socket.gethostname()}, since'),
      resume.alone_in(tmp_path),
    ):
      pass


@pytest.mark.parametrize('text', ['{"format": 5, "conf', f'{{"format": {resume.FORMAT}}}'])
@mutation('except ValueError as error:', 'except KeyError as error:', file='bertjax/json_files.py')
def test_a_torn_config_is_named(tmp_path, text):
  (tmp_path / 'config.json').write_text(text)
  for call in (lambda: check(tmp_path, given()), lambda: resume.stored_config(tmp_path)):
    with pytest.raises(ValueError, match='config.json'):
      call()


def test_a_workdir_that_is_a_link_that_leads_nowhere_is_named(tmp_path):
  (tmp_path / 'run').symlink_to('old/run')
  with pytest.raises(UserError, match='run is a link to old/run, which leads to no file: mend'):
    resume.stored_config(tmp_path / 'run')


@mutation('json_files.check(path, found, dict(format=int))', 'pass')
def test_a_format_that_is_no_number_is_named(tmp_path):
  (tmp_path / 'config.json').write_text('{"format": "x", "config": {}}')
  with pytest.raises(ValueError, match="config.json: format: expected int, got 'x'"):
    resume.stored(tmp_path)


@mutation('if gone or saved and not steps:', 'if False:')
def test_checkpoints_that_vanished_are_missed(workdir):
  directory = workdir / 'checkpoints'
  with pytest.raises(ValueError, match='config.json is there, but nothing in .*checkpoints'):
    resume.check_history(workdir)
  directory.mkdir()
  assert resume.check_history(workdir) == []  # killed before its first checkpoint
  for step in (6, 12):
    resume.note_saved(workdir, step)
    (directory / str(step)).mkdir()
  assert resume.check_history(workdir) == []
  (directory / '12').rename(directory / '12.damaged')
  [said] = resume.check_history(workdir)
  assert 'Checkpoint 12 of' in said and said.endswith('going on from 6')
  (directory / '6').rmdir()
  with pytest.raises(ValueError, match='checkpoint 12 was the last one, .*--workdir'):
    resume.check_history(workdir)
  shutil.rmtree(directory)
  with pytest.raises(ValueError, match='removed, or is not mounted'):
    resume.check_history(workdir)
  (workdir / 'saved.json').write_text('{"st')
  with pytest.raises(ValueError, match='saved.json: expected a JSON object, got no JSON'):
    resume.check_history(workdir)


@mutation(' and name == str(int(name))', '', file='bertjax/checkpoint/reading.py')
@mutation('  return said\n', '  return []\n', file='bertjax/checkpoint/resume.py')
def test_a_name_that_is_no_step_is_said_and_left_alone(tmp_path):
  for name in ('8', '00020', '9.saving', '١٢'):
    (tmp_path / 'checkpoints' / name).mkdir(parents=True)
  said = resume.check_history(tmp_path)
  assert [line.rpartition('/')[2] for line in said] == [
    '00020 is left alone: expected the name 20', '١٢ is left alone: expected the name 12'
  ]  # fmt: skip
  assert reading.newest_step(tmp_path) == 8


def test_sets_may_come_and_go_but_keep_what_they_score(workdir):
  config = given()
  del config.evals.pseudo_perplexity
  config.evals.words = dict(type='loss', examples=3)
  check(workdir, config)
  config.evals.held_out.seed = 3
  with pytest.raises(ValueError, match='config.evals.held_out.seed: expected 17, got 3'):
    check(workdir, config)


def test_every_difference_is_listed_with_both_values(workdir):
  config = given()
  config.seed = 5
  config.model.dropout = 0.2
  config.data.mask.new = 'key'
  with pytest.raises(ValueError) as error:
    check(workdir, config)
  assert str(error.value).splitlines() == [
    f'{workdir} holds a run of another config:',
    "  config.data.mask.new: expected None, got 'key'",
    '  config.model.dropout: expected 0.1, got 0.2',
    '  config.seed: expected 0, got 5',
    'Give the same values to resume it, name those that are to change with --override=KEY, or give '
    'another --workdir for a new run',
  ]


@mutation('if not covers(names, each[0])]', 'if not names]')
def test_what_is_named_may_change_and_is_kept_in_the_history(workdir):
  config = given()
  config.optimizer.schedule.peak, config.model.dropout = 0.5, 0.2
  with pytest.raises(ValueError, match='model.dropout: expected 0.1, got 0.2') as error:
    check(workdir, config, ['config.optimizer.schedule'])
  assert 'peak' not in str(error.value)
  names = ['optimizer.schedule.peak', 'model.dropout']
  lines = check(workdir, config, names)
  assert lines[0] == 'config.model.dropout: 0.2 from now on, 0.1 before (--override)'
  assert lines[1].startswith('config.optimizer.schedule.peak: 0.5 from now on')
  for _ in range(2):  # a run that is killed and started again has changed once
    changed = resume.claim_workdir(workdir, resolved(config), FACTS, 12)
    assert changed['model.dropout'] == dict(old=0.1, new=0.2) and len(changed) == 2
    check(workdir, config, names)
  record = json.loads((workdir / 'config.json').read_text())
  assert [change['step'] for change in record['history']] == [12]
  assert changed_batches(workdir, config) == []
  config.data.mask.rate = 0.3
  assert changed_batches(workdir, config) == ['data.mask.rate']


def test_an_override_needs_a_run_and_a_key_that_there_is(workdir, tmp_path):
  config = given()
  with pytest.raises(ValueError, match="'optimizer.schedule.peek'; did you mean .*peak'"):
    check(workdir, config, ['optimizer.schedule.peek'])
  with pytest.raises(ValueError, match='where none has begun: leave it out'):
    check(tmp_path / 'new', config, ['model.dropout'])


def test_steps_that_are_left_out_too_late_are_named(workdir):
  config = given()
  config.skip_steps = (3, (4, 9), 12)
  late = lambda: resume.trained_already(resume.stored(workdir), config.skip_steps, 5)
  assert late() == [3, (4, 9)]
  resume.claim_workdir(workdir, resolved(config), FACTS, 5)
  assert late() == []


def test_what_a_run_did_not_have_yet_has_its_default(workdir):
  config, path = given(), workdir / 'config.json'
  record = json.loads(path.read_text())
  del record['config']['optimizer']['layer_decay'], record['config']['temperature']
  path.write_text(json.dumps(record))
  assert not check(workdir, config)
  config.optimizer.layer_decay = 0.5
  with pytest.raises(ValueError, match='config.optimizer.layer_decay: expected 1.0, got 0.5'):
    check(workdir, config)


SETS = {'evals.*.rows': 'pseudo_perplexity', 'evals.*.sentences': 'fill_mask'}


def leaf(config, key):
  """(parent, last part of the key) of a leaf at or below a dotted key."""
  *parents, last = key.replace('*', SETS.get(key, 'held_out')).split('.')
  for part in parents:
    config = config[part]
  while hasattr(config[last], 'keys'):
    config, last = config[last], next(iter(config[last]))
  return config, last


def test_what_may_differ_may_differ(workdir):
  config = given()
  sections.complete(config, ['evals.fill_mask'])
  for key in {*MAY_DIFFER} - {'evals.*.memories'}:  # of models with a memory
    parent, last = leaf(config, key)
    with parent.ignore_type():
      parent[last] = 12345
  check(workdir, config)


def test_what_follows_from_total_steps_follows_it_and_nothing_else_does(workdir):
  config = given()
  config.total_steps = 5_000_000
  assert config.optimizer.schedule.warmup_steps == 50_000
  resolve.check_workdir(workdir, resume.stored(workdir), config)
  assert config.total_steps == 5_000_000  # the check works on a copy
  config.optimizer.schedule.warmup_steps = 7
  with pytest.raises(ValueError, match='warmup_steps: expected 10000, got 7'):
    resolve.check_workdir(workdir, resume.stored(workdir), config)


@mutation("if not covers(names, 'data.vocab')", "if not covers(names, 'data.vocab') and not found")
@mutation("if data.reader == 'store' or not data.vocab", 'if not data.vocab')
def test_a_vocabulary_that_changes_under_its_name_is_refused_and_the_runs_own_stays(tmp_path):
  pieces = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'film']
  file = tmp_path / 'vocab.txt'
  config = glue.get_config('sst2')
  sections.complete(config)
  config.data.vocab = str(file)
  file.write_text('\n'.join(pieces))
  workdir = tmp_path / 'run'
  workdir.mkdir()
  own = workdir / 'vocab' / 'vocab.txt'
  kept.keep(load_vocabulary(file), own.parent)
  resume.claim_workdir(workdir, resolved(config), FACTS)
  assert not check(workdir, config)

  file.write_text('\n'.join([*pieces, 'cinema']))
  with pytest.raises(UserError, match='another vocabulary than when the run in .* began'):
    check(workdir, config)
  assert own.read_text() == '\n'.join(pieces)
  assert not check(workdir, config, ['config.data.vocab'])
  # A store has ids of its own.
  config.data.update(reader='store', plan=given().data.plan, mask=given().data.mask)
  resume.claim_workdir(workdir, resolved(config), FACTS)
  assert not check(workdir, config)
