"""Keys that were removed: a config that names one is told, a run with its usual value goes on."""

import json

import pytest
from mutation import mutation

from bertjax import removed
from bertjax.checkpoint import resume
from bertjax.config import schema, sections
from bertjax.errors import UserError
from configs import albert


def test_a_removed_key_is_refused_wherever_it_is_given():
  c = albert.get_config('test')
  c.data.mask.replacement = True
  with pytest.raises(UserError, match='data.mask.replacement was removed in 0.2, remove it'):
    schema.check(c)


@mutation("in ('config', 'facts') if part", "in ('facts',) if part")
@mutation("in ('config', 'facts') if part", "in ('config',) if part")
def test_a_run_with_the_usual_values_goes_on(tmp_path):
  c = albert.get_config('test')
  sections.complete(c)
  older = json.loads(c.to_json_best_effort())
  older['data']['mask']['replacement'] = True
  older['evals']['held_out']['rows_of'] = 'held_out'
  masks = dict(name='xlnet_permutation'), dict(name='rule', whole_word=False)  # which reads it
  of_phases = [dict(data=dict(mask=mask), optimizer=dict(b1=0.5)) for mask in masks]
  c.phases = dict(zip(('one', 'two'), of_phases, strict=True))
  older['phases'] = json.loads(c.phases.to_json_best_effort())
  older['phases']['one']['data']['mask'] |= dict(replacement=True, whole_word=False)
  path = tmp_path / 'config.json'
  brought = dict(name='elmo', mix_decay=0.0)  # by a model, and by a teacher
  facts = dict(model=brought, teacher=dict(model=brought, sha256='0'))
  write = lambda: path.write_text(json.dumps(dict(format=resume.FORMAT, config=older, facts=facts)))
  write()
  found = resume.stored(tmp_path)['facts']
  assert found == dict(model=dict(name='elmo'), teacher=dict(model=dict(name='elmo'), sha256='0'))
  sections.complete(c)
  assert resume.compare(tmp_path, resume.stored(tmp_path), c) == []
  as_json = lambda config: json.loads(config.to_json_best_effort())
  assert as_json(resume.stored_config(tmp_path)) == as_json(c)
  older['model']['mix_decay'] = 0.3
  write()
  with pytest.raises(UserError, match='has config.model.mix_decay=0.3, which was'):
    resume.stored(tmp_path)


def test_the_names_are_no_keys_of_any_more():
  for key in removed.REMOVED:
    with pytest.raises(UserError, match='was removed'):
      removed.refuse(f'config.phases.one.{key.partition("@")[0]}')
