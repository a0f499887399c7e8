"""Recipes' needs of a vocabulary, said by `prepare` and by a run before any text is read."""

import pytest
from mutation import mutation
from prepare_runs import run, write_text
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from bertjax.config import command_line
from bertjax.errors import UserError
from bertjax.examples import readers, unread_text
from bertjax.vocab.special import ROLES
from bertjax.vocab.train import TRAINERS
from bertjax.vocab.vocabulary import load_vocabulary


@pytest.fixture
def given(tmp_path):
  """Text, and a tokenizer.json without pad and mask."""
  write_text(tmp_path / 'a.txt', documents=20)
  tokenizer = Tokenizer(models.BPE(unk_token='[UNK]'))
  tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
  trainer = trainers.BpeTrainer(special_tokens=['[UNK]', '[CLS]', '[SEP]'], vocab_size=90)
  tokenizer.train([f'{tmp_path}/a.txt'], trainer)
  tokenizer.save(f'{tmp_path}/tokenizer.json')
  where = dict(input=tmp_path / 'a.txt', vocab=tmp_path / 'tokenizer.json')
  return where | dict(output=tmp_path / 'store')


@pytest.mark.parametrize(
  'config, match',
  [
    ('roberta.py', "'bert' needs .* has no pad, mask: expected one"),
    ('bert.py:base', "in phase 'phase1': .* has no pad, mask: expected"),
    ('t5.py', "'t5_spans' needs .* has no pad: expected"),
    ('finetune/glue.py:sst2', 'trains on labelled files, which no store is made of'),
    ('robert.py', 'configs/robert.py: there is no such file.*roberta'),
    ('gpt.py', None),
  ],
)
@mutation('  _check_use(vocabulary)\n', '')
def test_prepare_refuses_a_vocabulary_that_a_recipe_cannot_use(given, config, match):
  if match is None:
    assert run(**given, **{'for': f'configs/{config}'}).meta['tokens'] > 0
    return
  with pytest.raises(UserError, match=match):
    run(**given, **{'for': f'configs/{config}'})
  assert not list(given['output'].parent.glob('store*'))


@mutation('role in plan_and_mask.named(key, name).special', 'False')
def test_prepare_says_what_a_vocabulary_lacks(given, capsys):
  run(**given)
  said = capsys.readouterr().out
  assert 'has no mask: expected one for config.data.mask=albert_ngrams, ' in said
  assert 'has no pad: expected one' in said and 'has no cls' not in said


@pytest.mark.parametrize('kind', TRAINERS)
@mutation("t5=['sep', 'pad', 'unk']", "t5=['sep', 'pad', 'mask']")
def test_the_pieces_of_trained_vocabularies_are_known_before(tmp_path, kind):
  text = ['the cat sat on a mat and saw dogs run', 'far away over hills'] * 50
  TRAINERS[kind](text, 300 if kind == 'bpe' else 126 if kind == 't5' else 28, False, tmp_path)
  special = load_vocabulary(tmp_path).special
  roles = unread_text.trained_roles(kind)
  assert {role for role, i in special.items() if i is not None} == {*roles}
  assert all(role in special for role in ROLES)


@mutation("SENTINELS if kind == 't5' else 0", 'SENTINELS')
@pytest.mark.parametrize(
  'config, kind, match',
  [
    ('t5.py', 'bpe', '^config.data.train_vocab.type=bpe: .* with as many pieces <extra_id_0>'),
    ('roberta.py', 't5', 'train_vocab.type=t5 has no cls, mask'),
    ('xlnet.py', 'wordpiece', 'has no eod'),
    ('t5.py', 't5', None),
  ],
)
def test_a_run_that_trains_its_vocabulary_is_refused_before(config, kind, match):
  c = command_line.load(f'configs/{config}')
  c.data.input, c.data.train_vocab.type, c.data.train_vocab.size = 'a.txt', kind, 1000
  check = readers.of(c.data).check
  if match is None:
    check(c)
    return
  with pytest.raises(UserError, match=match):
    check(c)
