"""JSON that others have written: what is wrong with it is named, with the file."""

import pytest
from mutation import mutation

from bertjax import json_files
from bertjax.errors import UserError
from bertjax.formats import sentence_modules


@pytest.mark.parametrize(
  ('text', 'said'),
  [
    (b'', 'no JSON'), (b'{"a"', 'no JSON'), (b'\xff{}', 'no JSON'), (b'[1]', 'list'),
    (b'[' * 10**6, '.*nested too deep'), (b'{"a":' * 10**5, '.*nested too deep'),
    (b'null', 'NoneType'),
  ],
)  # fmt: skip
@mutation('except RecursionError as error:', 'except ZeroDivisionError as error:')
@mutation('if not isinstance(found, kind):', 'if False:', case='[1]-list')
def test_a_file_without_an_object_is_refused_by_name(tmp_path, text, said):
  (tmp_path / 'a.json').write_bytes(text)
  with pytest.raises(UserError, match=f'a.json: expected a JSON object, got {said}.*: mend it'):
    json_files.read(tmp_path / 'a.json', remedy=': mend it')


@pytest.mark.parametrize(
  ('name', 'text', 'said'),
  [
    ('modules.json', '{}', 'expected a JSON list, got dict'),
    ('modules.json', '[1]', 'expected objects with type and path'),
    ('sentence_bert_config.json', '{"max_seq_length": "x"}', 'max_seq_length: expected int'),
    ('config_sentence_transformers.json', '{"prompts": [1]}', 'prompts: expected dict, got .1'),
  ],
)
@mutation('if not isinstance(found.get(key), kind | None):', 'if False:')
def test_a_field_of_another_kind_is_refused_by_name(tmp_path, name, text, said):
  modules = '[{"type": "Transformer", "path": ""}]'
  (tmp_path / 'modules.json').write_text(modules)
  (tmp_path / name).write_text(text)
  with pytest.raises(UserError, match=f'{name}: {said}'):
    sentence_modules.read(tmp_path, 'bert')


@mutation(
  """  usual = _json(path / 'tokenizer_config.json').get('model_max_length')
  if not modules:
    return MEAN
""",
  """  if not modules:
    return MEAN
  usual = None
""",
  file='bertjax/formats/sentence_modules.py',
)
def test_a_file_of_a_model_without_modules_or_vocabulary_is_looked_at(tmp_path):
  (tmp_path / 'tokenizer_config.json').write_text('[[]]')
  with pytest.raises(UserError, match='tokenizer_config.json: expected a JSON object, got list'):
    sentence_modules.read(tmp_path, 'bert')
