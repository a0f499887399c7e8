"""The language in which a model reads its texts."""

import dataclasses
import json

import numpy as np
import published
import pytest
import used_models
from mutation import mutation

import bertjax
from bertjax.errors import UserError
from bertjax.formats import directory
from bertjax.sources import runs
from bertjax.use import load


@mutation('  return vocabulary.of_language(language)\n', '  return vocabulary\n')
@mutation('    if not languages:\n', '    if False:\n')
def test_words_are_cut_by_the_rules_of_the_language(shared):
  vocabulary = published.vocabulary(shared, published.XLM)
  assert load.in_language(vocabulary, 'fr', ()).language == 'fr'
  assert load.in_language(vocabulary, 1, ('de', 'fr')).language == 'fr'
  assert load.in_language(vocabulary, None, ('de', 'fr')).language == 'en'
  with pytest.raises(UserError, match='expected its name, as in de, got language=1 of a model'):
    load.in_language(vocabulary, 1, ())
  plain = dataclasses.replace(vocabulary, check_language=None)
  assert load.in_language(plain, 1, ()) is plain


@mutation('opened.path), opened.languages, opened', 'opened.path), (), opened')
def test_a_directory_may_name_the_languages_of_its_table(tmp_path):
  pair = used_models.make(tmp_path, 'xlm', extra=(('language', 3),))
  run = runs.open_run(pair.workdir)
  out = tmp_path / 'out'
  out.mkdir()
  params, names = run.params(), ('fr', 'en', 'de')
  directory.write(out, params, run.config.model, run.vocabulary, 'float32', 1 << 30, (), names)
  assert json.loads((out / 'config.json').read_text())['lang2id'] == dict(fr=0, en=1, de=2)
  vectors = [bertjax.Model.load(out, language=each).embed(['w9 w8']) for each in ('de', 2, 'fr')]
  np.testing.assert_array_equal(vectors[0], vectors[1])
  assert not np.array_equal(vectors[0], vectors[2])
  with pytest.raises(UserError, match="expected one of de, en, fr, got 'es'"):
    bertjax.Model.load(out, language='es')


@mutation(
  'as_step(step) if isinstance(step, str)', 'step if True', file='bertjax/checkpoint/reading.py'
)
def test_a_step_is_a_number_or_the_best(tmp_path):
  workdir = used_models.make(tmp_path, 'gpt').workdir
  assert bertjax.Model.load(workdir, step='0').source == bertjax.Model.load(workdir, step=0).source
  with pytest.raises(UserError, match="expected a number or 'best', got 'newest'"):
    bertjax.Model.load(workdir, step='newest')
