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
  c.data.mask.favor_longer = True
  with pytest.raises(UserError, match='data.mask.favor_longer was removed in 0.2, remove it'):
    schema.check(c)
  c = albert.get_config('test')
  with c.unlocked():
    c.evals.similarity = dict(type='similarity', every=1, file='')
  with pytest.raises(UserError, match='evals.similarity was removed in 0.2, .* what mteb judges'):
    schema.check(c)


@mutation("in ('config', 'facts') if part", "in ('facts',) if part")
@mutation("in ('config', 'facts') if part", "in ('config',) if part")
def test_a_run_with_the_usual_values_goes_on(tmp_path):
  c = albert.get_config('test')
  sections.complete(c)
  older = json.loads(c.to_json_best_effort())
  older['optimizer'] |= dict(trust='decayed')
  older['data']['mask']['favor_longer'] = False
  older['evals']['similarity'] = dict(type='similarity', every=5, file='', text=['a', 'b'])
  masks = dict(name='xlm', rate=0.1), dict(name='ernie', block=8)  # whose blocks are read
  of_phases = [dict(data=dict(mask=mask), optimizer=dict(b1=0.5)) for mask in masks]
  c.phases = dict(zip(('one', 'two'), of_phases, strict=True))
  older['phases'] = json.loads(c.phases.to_json_best_effort())
  older['phases']['one']['optimizer']['trust'] = 'decayed'
  older['phases']['one']['data']['mask'] |= dict(alpha=0.0, block=32)
  path = tmp_path / 'config.json'
  brought = dict(name='elmo', mix_decay=0.0)  # by a model, and by a teacher
  facts = dict(model=brought, teacher=dict(model=brought, sha256='0'))
  write = lambda: path.write_text(
    json.dumps(dict(format=resume.FORMAT, config=older, given={}, facts=facts))
  )
  write()
  found = resume.stored(tmp_path)['facts']
  assert found == dict(model=dict(name='elmo'), teacher=dict(model=dict(name='elmo'), sha256='0'))
  sections.complete(c)
  assert resume.compare(tmp_path, resume.stored(tmp_path), c) == []
  as_json = lambda config: json.loads(config.to_json_best_effort())
  assert as_json(resume.stored_config(tmp_path)) == as_json(c)
  older['evals']['similarity']['file'] = 'pairs.tsv'
  write()
  with pytest.raises(UserError, match=r"has config.evals.similarity.file='pairs.tsv', which was"):
    resume.stored(tmp_path)


def test_the_names_are_no_keys_of_any_more():
  for key in removed.REMOVED:
    with pytest.raises(UserError, match='was removed'):
      removed.refuse(f'config.phases.one.{key.partition("@")[0]}')
