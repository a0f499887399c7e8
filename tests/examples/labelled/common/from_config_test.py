"""What a config says of labelled examples: the language that their words are cut by."""

import json
import types

import pytest
from ml_collections import ConfigDict
from mutation import mutation

from bertjax.errors import UserError
from bertjax.examples.labelled.common import from_config
from bertjax.vocab.vocabulary import load_vocabulary
from configs.finetune import text, write

LANGUAGES = ('en', 'fr')
TEXT = "L'homme qu'il a vu."


@pytest.fixture(scope='module')
def vocabulary(xlm_words):
  return load_vocabulary(xlm_words)


@pytest.fixture
def store(vocabulary, tmp_path):
  vocabulary.save(tmp_path / 'vocab')
  return types.SimpleNamespace(path=tmp_path, special=vocabulary.special, languages=())


def config():
  c = text.get_config().copy_and_resolve_references()
  c.data.task.update(text=('text',), label='label', classes=('a', 'b'))
  c.update(length=32)
  c.model = ConfigDict(dict(name='bert', extra=(('language', 2),)))
  c.data.update(languages=LANGUAGES, language='en')
  return c


@mutation("if judged and 'unlabelled' in given:", 'if False:')
def test_labels_are_what_a_model_is_judged_by(store, tmp_path):
  (tmp_path / 'a.jsonl').write_text(json.dumps(dict(text=TEXT, label='b')))
  c = config()
  c.data.task.unlabelled = True
  of = lambda **more: from_config.open_rows(c, f'{tmp_path}/a.jsonl', 'key', store, 0, 1, **more)
  assert of().examples.label == {}
  assert of(judged=True).examples.label['label'].tolist() == [1]
  assert c.data.task.unlabelled


@mutation("_n, written=examples.second.get('target', ())", '_n')
@mutation('if said := much_unknown', 'if said := False and much_unknown')
def test_texts_of_which_much_is_unknown_are_named_once(tmp_path, caplog):
  (tmp_path / 'vocab').mkdir()
  (tmp_path / 'vocab' / 'vocab.txt').write_text('[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nw1\nw2\nw3')
  special = load_vocabulary(tmp_path / 'vocab').special
  store = types.SimpleNamespace(path=tmp_path, special=special, languages=())
  c = write.get_config().copy_and_resolve_references()
  for name, lines in dict(a=[('w1 w2', 'w3 Ж')] * 3, b=[('Ж w2', 'w3')], c=[('w1', 'w2')]).items():
    rows = ''.join(f'{one}\t{other}\n' for one, other in lines)
    (tmp_path / f'{name}.tsv').write_text(f'text\ttarget\n{rows}', encoding='utf-8')
    for _ in range(2):
      from_config.open_rows(c, f'{tmp_path}/{name}.tsv', 'key', store, 0, 1)
  a, b = (record.getMessage() for record in caplog.records)
  assert 'a.tsv: 33.3% of the tokens that are written' in a and '--remap_vocab' in a
  assert 'b.tsv: 33.3% of the tokens that are read' in b


@mutation(' vocabulary_of(config, store, language)', ' vocabulary_of(config, store)')
@mutation('more = extra_ids.ids(config, language, store.languages)', 'more = extra_ids.ids(config)')
def test_texts_of_a_file_are_cut_by_its_language(vocabulary, store, tmp_path):
  (tmp_path / 'a.jsonl').write_text(json.dumps(dict(text=TEXT, label='b')))
  c, found = config(), {}
  for language in ('', 'en', 'fr', '1'):
    rows = from_config.open_rows(c, f'{tmp_path}/a.jsonl', 'key', store, 0, 1, language)
    found[language] = rows.examples.id_n[0][1:-1].tolist()
  expected = [vocabulary.encode_flat([TEXT], [each])[0].tolist() for each in LANGUAGES]
  assert [found['en'], found['fr']] == expected and expected[0] != expected[1]
  assert found[''] == found['en'] and found['1'] == found['fr']
  c.data.update(languages=(), language='')
  with pytest.raises(UserError, match='expected that of the examples by name'):
    from_config.vocabulary_of(c, store)
  store.languages = LANGUAGES  # the names of a store, where the config has none
  rows = from_config.open_rows(c, f'{tmp_path}/a.jsonl', 'key', store, 0, 1, 'fr')
  assert rows.examples.id_n[0][1:-1].tolist() == found['fr']
  assert rows.extra_ids == dict(language=1)
