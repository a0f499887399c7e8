"""Which language labelled examples are in, for a table and for the rules of words; and roles."""

import pytest
from ml_collections import ConfigDict
from mutation import mutation

from bertjax.errors import UserError
from bertjax.examples.labelled.common import extra_ids


def config(*extra, language='', languages=('de', 'en', 'fr')):
  data = dict(language=language, languages=languages)
  return ConfigDict(dict(model=dict(extra=extra), data=data))


@mutation('    said = language or config.data.get', '    said = config.data.get')
def test_an_evaluation_may_be_in_a_language_of_its_own():
  c = config(('language', 3), language='en')
  assert extra_ids.ids(c) == dict(language=1)
  assert extra_ids.ids(c, 'fr') == extra_ids.ids(c, '2') == dict(language=2)
  c.data.languages = ()  # as of a directory of transformers
  assert extra_ids.ids(c, '2') == dict(language=2)


def test_other_models_need_no_language_and_roles_are_0():
  assert extra_ids.ids(config(language='en')) == {}
  assert extra_ids.ids(ConfigDict(dict(model=dict(name='modernbert'), data={}))) == {}
  assert extra_ids.ids(config(('role', 2))) == dict(role=0)


@pytest.mark.parametrize(
  ('fields', 'said'),
  [
    (dict(), 'expected in config.data.language, .* one of de, en, fr, got '),
    (dict(language='fa'), "config.data.language: expected one of .*, got 'fa'"),
    (dict(language='3'), 'expected a number below 3, the rows of the table, got 3'),
    (dict(language='en', languages=()), "its number, 0 to 2, got 'en'"),
  ],
  ids=['none', 'unknown', 'number', 'unnamed'],
)
@mutation('  if int(said) >= rows:', '  if False:', case='number')
def test_a_language_that_is_needed_or_unknown_is_said(fields, said):
  with pytest.raises(UserError, match=said):
    extra_ids.ids(config(('language', 3), **fields))


@mutation(
  "  said = language or config.data.get('language', '')\n  languages",
  "  said = config.data.get('language', '')\n  languages",
)
@mutation('    return languages[int(said)]', "    return 'en'")
def test_a_number_is_the_language_of_that_name():
  c = config(language='en')
  assert extra_ids.name(c) == 'en' and extra_ids.name(c, 'de') == extra_ids.name(c, '0') == 'de'
  c.data.languages = ()
  assert extra_ids.name(c, 'ur') == 'ur'


@pytest.mark.parametrize(
  ('said', 'message'),
  [('', "by name in config.data.language, .* got ''$"), ('4', "got '4'; config.data.languages")],
  ids=['none', 'number'],
)
def test_a_vocabulary_that_cuts_by_language_needs_its_name(said, message):
  with pytest.raises(UserError, match=message):
    extra_ids.name(config(language=said))
