"""What no store of a text will have is refused before the text is read."""

import pytest
from mutation import mutation

from bertjax.examples import readers
from configs import bert, ernie, spanbert, xlm

WORDS = 'hides phrases and entities.*config.data.lexicon=FILES or config.data.segmenter=MODULE'
LANGUAGE = 'the language of each text is read.*config.data.input=LANGUAGE=FILES'
ROLE = r"the role of each text is read.*config.data.columns=\('role',\)"


def check(config, **changes):
  config.data.input = 'a.txt'
  config.update_from_flattened_dict(changes)
  readers.of(config.data).check(config)


def dialogues(**changes):
  return ernie.get_config('test_dialogues'), {'data.mask.word_prob': 0.0} | changes


MONOLINGUAL = {'data.language_alpha': 0.5}
SPANS = {'data.mask.entity_prob': 0.5}
TRANSLATION = {'data.plan': dict(xlm.recipes.TRANSLATION_PLAN), 'data.language_alpha': None}
ALONE = {'model.extra': ()}


@mutation('  _check_units(recipe, data)\n', '')
@mutation(
  '  plan_and_mask.check_length(recipe, recipe.masking', '  (lambda *_: 0)(recipe, recipe.masking'
)
@mutation('    _check_columns(recipe, tables, data)\n', '    pass\n')
@mutation("['language'] if recipe.language_alpha is not None else []", '[]')
@pytest.mark.parametrize(
  ('config', 'changes', 'message'),
  [
    (ernie.get_config('test'), {}, WORDS),
    (spanbert.get_config('test'), SPANS, WORDS),
    (bert.get_config('test'), {'length': 4}, "'pairs' needs length >= 5, got rows of 4 tokens"),
    (*dialogues(**{'data.columns': ()}), ROLE),
    (xlm.get_config('test'), {}, LANGUAGE),
    (xlm.get_config('test'), MONOLINGUAL | ALONE, LANGUAGE),
    (xlm.get_config('test'), TRANSLATION | ALONE | {'data.language_block': 1}, LANGUAGE),
    (xlm.get_config('test'), {'data.input': 'python_docs'}, LANGUAGE),
    (
      bert.get_config('test'),
      {'model.extra': (('segment', 3),)},
      'expected one of language and role',
    ),
    (xlm.get_config('test'), {'data.input': 'de/a.txt,http://b=c/d.txt'}, LANGUAGE),
  ],
)
def test_what_the_text_will_not_have_is_named(config, changes, message):
  with pytest.raises(ValueError, match=message):
    check(config, **changes)


@pytest.mark.parametrize(
  ('config', 'changes'),
  [
    (ernie.get_config('test'), {'data.lexicon': 'words.txt'}),
    (ernie.get_config('test'), {'data.mask.word_prob': 0.0}),
    (ernie.get_config('test'), {'data.store': 'a/store'}),
    (spanbert.get_config('test'), {}),
    dialogues(),
    (bert.get_config('test'), {}),
    (xlm.get_config('test'), {'data.input': 'en=a.txt,de=b.txt'}),
    (xlm.get_config('test'), {'data.columns': ('language',)}),
    (xlm.get_config('test'), {'data.input': '', 'data.mixture': 'wiki40b_languages'}),
    (xlm.get_config('test'), {'data.input': 'tfds:mine/de'}),
    (xlm.get_config('test'), {'data.input': 'mine', 'data.module': 'my_tasks'}),
    (ernie.get_config('test'), {'data.input': ''}),  # a store that lies in the workdir
  ],
)
def test_what_the_text_may_have_is_waited_for(config, changes):
  check(config, **changes)
