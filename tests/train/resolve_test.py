"""From a config and facts to the spec of a run, and back from an older config.json."""

import json

import pytest
from mutation import mutation
from systems import tiny

from bertjax import dotted
from bertjax.checkpoint import resume
from bertjax.config import command_line
from bertjax.errors import UserError
from bertjax.train import facts as facts_lib
from bertjax.train import resolve
from bertjax.train.facts import Facts

STORE = dict(store='store', ids=211, pad=3, languages=('de', 'en', 'fr'))
plain = lambda config: dotted.flat(json.loads(config.to_json_best_effort()))


@mutation('copy.deepcopy((spec.config, spec.timeline))', 'spec.config, spec.timeline')
@pytest.mark.parametrize('name', ['bert', 'roberta', 'xlm_e'])
def test_a_config_is_resolved_without_being_changed_and_once(name):
  given = tiny(name)
  before = plain(given)
  first = resolve.resolve(given)
  unfilled = plain(first.config)
  spec = resolve.with_store(first, Facts(**STORE))
  assert plain(given) == before and plain(first.config) == unfilled
  assert spec.config.model.vocab_size == 211
  assert all(phase.config.model.vocab_size == 211 for phase in spec.timeline.phases)
  again = resolve.resolve(spec.config, spec.facts)
  assert plain(again.config) == plain(spec.config)
  assert [plain(p.config) for p in again.timeline.phases] == [
    plain(p.config) for p in spec.timeline.phases
  ]


@mutation('  return as_json(whole)\n', '  return config\n')
@pytest.mark.parametrize('name', ['roberta', 'xlm'])
def test_an_older_run_resolves_to_what_it_was(name, tmp_path):
  given, facts = tiny(name), Facts(**STORE)
  whole = plain(resolve.resolve(given, facts).config)
  lacking = ('temperature', 'optimizer.schedule.start', 'data.language')  # younger than the run
  older = dotted.nested({key: value for key, value in whole.items() if key not in lacking})
  record = dict(format=resume.FORMAT, config=older, facts=facts.kept())
  (tmp_path / resume.NAME).write_text(json.dumps(record))
  found = resume.stored(tmp_path)
  assert resolve.check_workdir(tmp_path, found, given) == []
  assert resume.changes(found, resume.as_config(dotted.nested(whole)), 3) == {}
  assert plain(resolve.resolve(given, facts_lib.recalled(found, tmp_path)).config) == whole
  given.model.dropout = 0.9
  with pytest.raises(UserError, match='config.model.dropout: expected 0.1, got 0.9'):
    resolve.check_workdir(tmp_path, found, given)


@mutation(' and asked(key)', '', file='bertjax/config/schema.py')
@mutation("not data['store']", 'True', file='bertjax/config/schema.py')
@mutation(' if key not in READ_WITH_A_STORE]', ']')
def test_a_store_beside_the_recipes_values_for_a_text_needs_no_note_but_beside_the_users():
  config = command_line.load('configs/elmo.py')
  config.data.store = 'a'
  said = lambda: resolve.resolve(config, Facts(given=('data.store', 'seed'))).said
  assert said() == ()
  config.data.train_vocab.type = 'wordpiece'  # in a file of the user's own, or by a flag
  [note] = said()
  assert note.startswith('config.data.train_vocab would make a store')


@mutation('with config.objective.teacher.unlocked() as own:', 'if own := config.objective.teacher:')
def test_a_config_of_the_command_line_takes_its_teachers_model():
  config = command_line.load('configs/distill/kd.py')  # locked, so that no key is made by mistake
  config.objective.teacher.source, config.data.task.classes = 'runs/teacher', ('no', 'yes')
  brought = dict(model=command_line.load('configs/bert.py:tiny').model.to_dict(), sha256='abc')
  teacher = resolve.resolve(config, Facts(given=(), teacher=brought)).config.objective.teacher
  assert teacher.model.to_dict() == brought['model'] and teacher.sha256 == 'abc'
