"""Accents, vowel signs and tones: kept or stripped as the files say, else as the pieces prove."""

import gzip
import io
import json
import unicodedata

import pytest
from mutation import mutation
from slow_imports import sentencepiece, transformers
from tiers import in_tiers

from bertjax.vocab.train import TRAINERS
from bertjax.vocab.vocabulary import load_vocabulary

BIGBIRD = dict(
  pad_id=0, eos_id=1, bos_id=2, unk_id=3, control_symbols=['[CLS]', '[SEP]', '[MASK]']
)  # fmt: skip
ALBERT = dict(
  pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=['[CLS]', '[SEP]', '[MASK]']
)  # fmt: skip
XLNET = dict(
  control_symbols=['<cls>', '<sep>', '<pad>', '<mask>', '<eod>'], user_defined_symbols=['<eop>']
)  # fmt: skip
DIALOGUE = dict(user_defined_symbols=['<eop>', '[CLS]'])
KEPT, STRIPPED, PLAIN = 'quotes alone', 'quotes and accents', 'nothing'


def lines_of(shared, name, count=700):
  """One side of a file of translations."""
  with gzip.open(shared / f'multilingual/parallel/laser_tatoeba/{name}-eng.tsv.gz', 'rt') as file:
    return [line.split('\t')[0].strip() for line, _ in zip(file, range(count), strict=False)]


def models_of(lines, **options):
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(lines), model_writer=model, minloglevel=2, num_threads=1,
    vocab_size=900, hard_vocab_limit=False, character_coverage=1.0, **options,
  )  # fmt: skip
  return model.getvalue()


@pytest.fixture(scope='module')
def french(shared):
  lines = [*lines_of(shared, 'fra'), "``Ça'' et l'été à Nîmes", 'garc\u0327on de\u0301ja\u0300']
  forms = dict(bigbird=BIGBIRD, albert=ALBERT, xlnet=XLNET, dialogue=DIALOGUE)
  return lines, {name: models_of(lines, **options) for name, options in forms.items()}


def cleaned(text, how):
  """As `preprocess_text` of the two programs."""
  if how == PLAIN:
    return text
  text = text.replace('``', '"').replace("''", '"')
  if how == KEPT:
    return text
  return ''.join(c for c in unicodedata.normalize('NFKD', text) if not unicodedata.combining(c))


CLASS, MODEL = 'tokenizer_config.json', 'config.json'
FILES = {
  'bigbird-bare': ({}, PLAIN),
  'dialogue-bare': ({}, PLAIN),
  'bigbird-no-class': ({CLASS: dict(do_lower_case=False)}, PLAIN),
  'bigbird': ({CLASS: dict(tokenizer_class='BigBirdTokenizer')}, PLAIN),
  'bigbird-model': ({MODEL: dict(model_type='big_bird')}, PLAIN),
  'bigbird-albert': ({CLASS: dict(tokenizer_class='AlbertTokenizerFast')}, STRIPPED),
  'bigbird-type': ({MODEL: dict(model_type='albert')}, STRIPPED),
  'bigbird-strip': ({CLASS: dict(keep_accents=False)}, STRIPPED),
  'bigbird-keep': ({CLASS: dict(keep_accents=True)}, KEPT),
  'albert-bare': ({}, STRIPPED),
  'xlnet-bare': ({}, STRIPPED),
  'xlnet-any': ({CLASS: dict(tokenizer_class='PreTrainedTokenizerFast')}, STRIPPED),
  'xlnet': ({CLASS: dict(tokenizer_class='XLNetTokenizer')}, STRIPPED),
  'albert-keep': ({CLASS: dict(tokenizer_class='AlbertTokenizer', keep_accents=True)}, KEPT),
  'albert-other': ({CLASS: dict(tokenizer_class='DebertaV2Tokenizer')}, PLAIN),
  'albert-model-class': ({MODEL: dict(tokenizer_class='T5Tokenizer')}, PLAIN),
}


@mutation('cleaned |= any(', "cleaned |= '[CLS]' in pieces or any(", case='bigbird-bare')
@mutation('if name in GENERIC:', 'if True:', case='albert-other')
@mutation("model.get('tokenizer_class') or implied", 'implied', case='albert-model-class')
@pytest.mark.parametrize('case', FILES)
def test_text_is_cleaned_where_a_file_says_so(french, tmp_path, case):
  """Elsewhere the ids are those of sentencepiece itself, in a copy too."""
  (lines, models), (files, how) = french, FILES[case]
  for name, values in files.items():
    (tmp_path / name).write_text(json.dumps(values))
  file = tmp_path / 'spiece.model'
  file.write_bytes(models[case.partition('-')[0]])
  original = sentencepiece.SentencePieceProcessor(model_file=str(file))
  expected = original.encode([cleaned(line, how) for line in lines])
  vocabulary = load_vocabulary(tmp_path)
  assert [ids.tolist() for ids in vocabulary.encode_batch(lines)] == expected
  assert vocabulary.meta['accents'] == (how != STRIPPED)
  vocabulary.save(tmp_path / 'copy')
  copy = load_vocabulary(tmp_path / 'copy')
  assert [ids.tolist() for ids in copy.encode_batch(lines)] == expected


def vocab_txt(path, lines, **options):
  """The vocab.txt alone that is trained on some lines."""
  made = path / 'made'
  made.mkdir()
  TRAINERS['wordpiece'](lines, 4000, directory=made, **options)
  (made / 'vocab.txt').rename(path / 'vocab.txt')
  return path / 'vocab.txt'


def bert_ids(file, texts, **options):
  theirs = transformers.BertTokenizer(str(file), **options)
  given = dict(add_special_tokens=False, verbose=False, split_special_tokens=True)
  return theirs(texts, **given)['input_ids']


def ids_of(vocabulary, texts):
  return [ids.tolist() for ids in vocabulary.encode_batch(texts)]


# Of languages of which there is no file: Hebrew with its points, Korean.
WRITTEN = dict(
  hebrew=['בְּרֵאשִׁית בָּרָא אֱלֹהִים', 'שָׁלוֹם עוֹלָם'] * 20,
  korean=['한국어 텍스트입니다', '안녕하세요 세계'] * 20,
)


@mutation('said is True or plain == _NO_ACCENTS.normalize_str(plain)', 'True', case='tha')
@mutation("config['strip_accents'] = not self.accents", 'pass', case='tha')
@pytest.mark.parametrize(
  'language',
  in_tiers(['tha', 'hin', 'vie', 'rus', 'jpn', 'tur', *WRITTEN], ['hin', 'vie', 'rus', 'jpn']),
)
def test_pieces_with_marks_prove_that_they_are_kept(shared, tmp_path, language):
  """Of a vocab.txt of lowercased text every piece can be given, as transformers' with
  strip_accents=False."""
  lines = WRITTEN.get(language) or lines_of(shared, language)
  file = vocab_txt(tmp_path, lines, lowercase=True, keep_accents=True)
  vocabulary = load_vocabulary(file)
  assert (vocabulary.lowercase, vocabulary.accents) == (True, True)
  texts = [*lines[:300], 'ÉTÉ À CAFÉ', *(p for p in vocabulary.pieces if p[:2] not in ('##', '[U'))]
  expected = bert_ids(file, texts, do_lower_case=True, strip_accents=False)
  assert ids_of(vocabulary, texts) == expected
  assert ids_of(load_vocabulary(file, lowercase=True), texts) == expected
  plain = [p for p in vocabulary.pieces[5:] if not p.startswith('##')]
  assert ids_of(vocabulary, plain) == [[vocabulary.pieces.index(p)] for p in plain]
  vocabulary.save(tmp_path / 'copy')
  assert ids_of(load_vocabulary(tmp_path / 'copy'), texts) == expected
  (tmp_path / 'tokenizer_config.json').write_text('{"do_lower_case": true}')
  assert ids_of(load_vocabulary(file), texts) == bert_ids(file, texts, do_lower_case=True)


@mutation('plain == plain.lower(', 'not set(plain) & set("ABCDEFGHIJKLMNOPQRSTUVWXYZ"')
def test_capitals_of_any_script_prove_that_text_is_cased(shared, tmp_path):
  ascii_capital = lambda line: any('A' <= c <= 'Z' for c in line)
  lines = [line for line in lines_of(shared, 'rus') if not ascii_capital(line)]
  file = vocab_txt(tmp_path, lines, lowercase=False)
  vocabulary = load_vocabulary(file)
  assert (vocabulary.lowercase, vocabulary.accents) == (False, True)
  assert ids_of(vocabulary, lines) == bert_ids(file, lines, do_lower_case=False)
  model = tmp_path / 'spiece.model'
  model.write_bytes(models_of(lines))
  original = sentencepiece.SentencePieceProcessor(model_file=str(model))
  assert ids_of(load_vocabulary(model), lines) == original.encode(lines)


@mutation("not re.search('[A-Z]', ''.join(pieces))", 'True')
def test_xlm_without_a_file_is_cased_where_a_piece_has_a_capital(tmp_path):
  (tmp_path / 'codes_x').write_text('t h 9\n')
  (tmp_path / 'vocab_x').write_text('The 3\nth@@ 2\n')
  found = load_vocabulary(tmp_path)
  assert (found.lowercase, found.accents) == (False, True)
