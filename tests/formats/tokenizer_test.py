"""Exported tokenizers give our ids in transformers, and those of transformers ours."""

import dataclasses
import gzip
import io
import json
import lzma

import published
import pytest
from mutation import mutation
from slow_imports import sentencepiece, transformers
from tokenizers import Tokenizer

from bertjax.formats.tokenizer import FIXED_TEXTS, differences, layouts, write
from bertjax.vocab.train import TRAINERS
from bertjax.vocab.vocabulary import load_vocabulary

REAL = (
  ('bert-base-uncased', 'bert'),
  ('bert-base-cased', 'electra'),
  ('bert-base-cased', 'bigbird'),
  ('bert-base-chinese', 'albert'),
  ('bert-base-multilingual-cased', 'distilbert'),
  ('ernie-1.0', 'ernie'),
  ('roberta', 'roberta'),
  ('roberta', 'longformer'),
  ('gpt2', 'transformer_xl'),
  ('t5', 'transformer_xl'),
  ('xlnet/spiece.model', 'xlnet'),
  ('xlm-xnli15/codes_xnli_15', 'xlm'),
)


def lines_of(shared, articles, translations):
  """English, Chinese and fifteen other languages; none spells a special token."""
  found = []
  for name in ('text_en/wikitext2/wiki.valid.raw.gz', 'zh/zhwiki/valid.txt.xz'):
    opener = gzip.open if name.endswith('gz') else lzma.open
    with opener(shared / name, 'rt', encoding='utf-8') as file:
      found += [line.strip('\n') for line, _ in zip(file, range(articles), strict=False)]
  for path in sorted(shared.glob('multilingual/parallel/laser_tatoeba/*.gz')):
    with gzip.open(path, 'rt', encoding='utf-8') as file:
      found += [line.rstrip('\n') for line, _ in zip(file, range(translations), strict=False)]
  return [line for line in found if line and '<unk>' not in line]


@pytest.fixture(scope='module')
def lines(shared):
  # To a small SentencePiece model II I and I II are one as good as the other.
  return [t for t in lines_of(shared, articles=150, translations=15) if 'III' not in t]


def ids_of(vocabulary, texts):
  return [ids.tolist() for ids in vocabulary.encode_batch(texts)]


def change(path, **keys):
  """Rewrites some keys of a JSON file, which may be missing."""
  spec = json.loads(path.read_text(encoding='utf-8')) if path.is_file() else {}
  path.write_text(json.dumps(spec | keys), encoding='utf-8')


def check(vocabulary, path, family, texts):
  """An export has our ids, in AutoTokenizer and read back."""
  write(vocabulary, path, family, max_length=128)
  assert differences(vocabulary, path, family) == []
  theirs = transformers.AutoTokenizer.from_pretrained(str(path))
  assert theirs.model_max_length == 128
  ours, ends = ids_of(vocabulary, texts), vocabulary.special.get('eos') is not None
  got = theirs(texts, add_special_tokens=ends, verbose=False)['input_ids']
  assert [t for t, a, b in zip(texts, ours, got, strict=True) if a != b] == []
  back = load_vocabulary(path)
  assert differences(back, path, family, layouts.between(back)) == []
  assert ids_of(back, texts) == ours and back.lowercase == vocabulary.lowercase
  assert (back.special, list(back.pieces)) == (vocabulary.special, list(vocabulary.pieces))


# The others are in the slow tier, on many lines.
@pytest.mark.parametrize(('name', 'family'), [REAL[0], REAL[-1]])
def test_real_vocabularies(shared, lines, tmp_path, name, family):
  if family == 'xlm':
    pytest.importorskip('sacremoses')
    lines = lines[::12]
  vocabulary = published.vocabulary(shared, name)
  check(vocabulary, tmp_path, family, lines)


@mutation("found['bos_token'] = found['cls_token']", "found['bos_token'] = '<s>'", case='xlm')
@mutation("cls A sep', 'cls A sep sep B sep", "cls A sep', 'cls A sep B sep", case='roberta')
@pytest.mark.parametrize(
  ('name', 'family', 'tokens', 'types'),
  [
    ('bert-base-cased', 'bert', '[CLS] a [SEP] b [SEP]', [0, 0, 0, 1, 1]),
    ('bert-base-cased', 'modernbert', '[CLS] a [SEP] b [SEP]', None),
    ('roberta', 'roberta', '<s> a </s> </s> b </s>', None),
    ('xlnet/spiece.model', 'xlnet', '▁a <sep> ▁ b <sep> <cls>', [0, 0, 1, 1, 1, 2]),
    ('xlm-xnli15/codes_xnli_15', 'xlm', '</s> a</w> </s> b</w> </s>', None),
    ('gpt2', 'gpt2', 'a b', None),
    ('roberta', 'openai_gpt', 'a b', None),
    ('roberta', 'bart', '<s> a </s> </s> b </s>', None),
    ('t5', 't5', '▁ a </s> ▁ b </s>', None),
  ],
  ids=['bert', 'modernbert', 'roberta', 'xlnet', 'xlm', 'gpt2', 'gpt', 'bart', 't5'],
)
def test_what_stands_around_a_pair(shared, tmp_path, name, family, tokens, types):
  if family == 'xlm':
    pytest.importorskip('sacremoses')
  write(published.vocabulary(shared, name), tmp_path, family, 64)
  theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
  found = theirs('a', 'b')
  assert theirs.convert_ids_to_tokens(found['input_ids']) == tokens.split()
  assert found.get('token_type_ids') == types
  if family in ('gpt2', 'openai_gpt', 'bart', 't5'):
    assert theirs.eos_token in ('</s>', '<|endoftext|>')
  if name == 'gpt2':
    return  # it has no padding
  padded = theirs(['a', 'a b c d'], padding=True)['input_ids'][0]
  assert padded[0 if family == 'xlnet' else -1] == theirs.pad_token_id


@mutation('told and any(rust', 'any(rust')
def test_types_that_a_tokenizer_does_not_name_are_not_looked_for(shared, tmp_path):
  write(published.vocabulary(shared, 'bert-base-cased'), tmp_path, 'bert', 64)
  file = tmp_path / 'tokenizer_config.json'
  names = dict(model_input_names=['input_ids', 'attention_mask'])
  file.write_text(json.dumps(json.loads(file.read_text()) | names))
  back = load_vocabulary(tmp_path)
  assert layouts.between(back) == (1, False)
  assert differences(back, tmp_path, 'bert', layouts.between(back)) == []


@pytest.mark.full
@pytest.mark.parametrize(('name', 'family'), REAL[:-1])
def test_real_vocabularies_on_many_lines(shared, tmp_path, name, family):
  texts = lines_of(shared, articles=3000, translations=250)
  if name == 't5':  # half-composed letters, see sentencepiece_json.py
    texts = [text for text in texts if 'ê\u0301' not in text]
  assert len(texts) > 6000
  check(published.vocabulary(shared, name), tmp_path, family, texts)


def test_lowercased(shared, lines, tmp_path):
  vocabulary = load_vocabulary(shared / 'tokenizers/xlnet/spiece.model', lowercase=True)
  check(vocabulary, tmp_path, 'xlnet', lines[::4])


@mutation(
  "tokenizer_class='PreTrainedTokenizerFast'", "tokenizer_class='RobertaTokenizer'", case='bpe-True'
)
@mutation("found.append((sentencepiece_json.FINAL_SIGMA, 'ς'))", 'pass')
@mutation("texts = ('A eos', 'A eos B eos')", "texts = ('A', 'A B')")
@pytest.mark.parametrize(
  'kind, lowercase',
  [*((kind, False) for kind in TRAINERS), ('wordpiece', True), ('bpe', True), ('unigram', True)],
)
def test_trained_vocabularies(lines, tmp_path, kind, lowercase):
  size = 2000 if kind != 'characters' else 300
  source = tmp_path / 'source'
  source.mkdir()
  TRAINERS[kind]([*lines[:400], *FIXED_TEXTS], size, lowercase, source)
  families = dict(wordpiece='bert', bpe='roberta', unigram='albert')
  vocabulary = load_vocabulary(source)
  separators = [f'a{chr(code)}b' for code in range(28, 32)] if kind == 'words' else []
  check(vocabulary, tmp_path / 'x', families.get(kind, 'transformer_xl'), lines[:400] + separators)


def trained(path, texts, **options):
  """A small SentencePiece model with these options."""
  model = io.BytesIO()
  given = dict(
    vocab_size=1600, hard_vocab_limit=False, character_coverage=0.98, pad_id=3,
    control_symbols=['<mask>'],
  )  # fmt: skip
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(texts), model_writer=model, minloglevel=2, num_threads=1,
    **(given | options),
  )  # fmt: skip
  path.mkdir(parents=True, exist_ok=True)
  (path / 'spiece.model').write_bytes(model.getvalue())
  return load_vocabulary(path, lowercase=False)


ALBERT = dict(
  pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=['[CLS]', '[SEP]', '[MASK]'],
  user_defined_symbols=[*'().-–£€', 'ab', 'the', 'ing'],
)  # fmt: skip


@mutation('-0.1 if p.type == _DEFINED', '-20.0 if p.type == _DEFINED', case='albert')
@mutation('sorted(score, key=lambda piece: -score[piece])', 'sorted(score)', case='bpe')
@mutation('(scored, unk, trainer.byte_fallback)', '(scored, unk, False)', case='bytes')
@mutation('split=whole)', 'split=True)', case='across')
@pytest.mark.parametrize(
  'options',
  [
    pytest.param(dict(model_type='bpe'), id='bpe'),
    pytest.param(dict(byte_fallback=True), id='bytes'),
    pytest.param(dict(model_type='char', vocab_size=200), id='characters'),
    pytest.param(dict(normalization_rule_name='identity'), id='identity'),
    pytest.param(dict(normalization_rule_name='nmt_nfkc_cf'), id='folded'),
    pytest.param(dict(remove_extra_whitespaces=False), id='spaces'),
    pytest.param(dict(add_dummy_prefix=False), id='no-prefix'),
    pytest.param(dict(split_by_whitespace=False), id='across'),
    pytest.param(ALBERT, id='albert'),
  ],
)
def test_kinds_of_sentencepiece(lines, tmp_path, options):
  vocabulary = trained(tmp_path / 'source', lines[:300], **options)
  odd = ['  two  spaces ', 'a grabbing, then (the) tab.ab–£€', '▁', '\t']
  write(vocabulary, tmp_path / 'x', 'albert', 64)
  theirs = Tokenizer.from_file(str(tmp_path / 'x/tokenizer.json'))
  texts = lines + odd if 'remove_extra_whitespaces' not in options else lines
  got = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=False)]
  ours = ids_of(vocabulary, texts)
  assert [t for t, a, b in zip(texts, ours, got, strict=True) if a != b] == []
  assert differences(vocabulary, tmp_path / 'x', 'albert') == []
  assert theirs.decode(got[0]) == vocabulary.decode(ours[0])


@mutation('normalizers.NFC(), normalizers.Precompiled', 'normalizers.Precompiled')
@mutation("normalizers.Replace(Regex(_combining()), '')", 'normalizers.StripAccents()')
@mutation('normalizers.Replace(Regex(FINAL_SIGMA)', "normalizers.Replace(Regex('Σ{9}')")
def test_text_is_cleaned_as_for_albert(lines, tmp_path):
  """Korean is taken apart and put together, Thai keeps its vowels, Σ ends a word as ς."""
  texts = [*FIXED_TEXTS, *lines[-225:]]
  options = dict(ALBERT, character_coverage=1.0, vocab_size=3000)
  lowered = [text.lower() for text in texts]
  trained(tmp_path / 'source', lowered, **options)
  vocabulary = load_vocabulary(tmp_path / 'source', lowercase=True)
  assert {'한', 'ส', 'ς'} <= {*''.join(vocabulary.pieces)}
  check(vocabulary, tmp_path / 'x', 'albert', texts)


@mutation('if change(p) != p]', 'if change(p) is None]')
def test_what_cannot_be_expressed_is_named(shared, lines, tmp_path):
  texts = lines[:200]
  for options, named in (
    (dict(model_type='word', vocab_size=300), 'words'),
    (dict(treat_whitespace_as_suffix=True), 'space behind words'),
    (dict(model_type='bpe', user_defined_symbols=['ing']), r"of bpe \['ing'\]"),
    (dict(user_defined_symbols=['½']), r"normalisation changes \['½'\]"),
  ):
    vocabulary = trained(tmp_path / 'source', texts, **options)
    with pytest.raises(ValueError, match=f'{named}.*cannot express'):
      write(vocabulary, tmp_path / 'x', 'albert', 64)
  gpt2 = published.vocabulary(shared, 'gpt2')
  bare = dataclasses.replace(gpt2, special=gpt2.special | dict(cls=None))
  with pytest.raises(ValueError, match="'albert' put cls, sep around .* has no cls"):
    write(bare, tmp_path / 'x', 'albert', 64)
  with pytest.raises(ValueError, match="'bort' are not known.*expected one of albert"):
    write(gpt2, tmp_path / 'x', 'bort', 64)
  assert not (tmp_path / 'x').exists()


@mutation("added[mask]['lstrip'] = True", "added[mask]['lstrip'] = False")
def test_masks_are_filled_by_the_pipeline(shared, tmp_path):
  """A spelled mask is the mask, with the space before it where pieces carry theirs."""
  vocabulary = published.vocabulary(shared, 'roberta')
  write(vocabulary, tmp_path, 'roberta', 64)
  config = transformers.RobertaConfig(
    vocab_size=vocabulary.size, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
    intermediate_size=8, max_position_embeddings=66, type_vocab_size=1,
  )  # fmt: skip
  transformers.RobertaForMaskedLM(config).save_pretrained(str(tmp_path))
  fill = transformers.pipeline('fill-mask', model=str(tmp_path), top_k=2)
  first, second = fill('The <mask> sat on the<mask>.')
  assert len(first) == len(second) == 2
  ids = fill.tokenizer('The <mask> sat on the<mask>.')['input_ids']
  parts = ids_of(vocabulary, ['The', ' sat on the', '.'])
  mask = [vocabulary.special['mask']]
  assert ids == [0, *parts[0], *mask, *parts[1], *mask, *parts[2], 2]


def shift(spec):
  """Two ids change places."""
  index = spec['model']['vocab']
  index['the'], index['of'] = index['of'], index['the']


def split_off(spec):
  """`jumps` is cut behind `jump`."""
  number = spec['model']['vocab']['jump']
  spec['added_tokens'].append(dict(spec['added_tokens'][0], content='jump', id=number))


PLANTED = dict(
  accents=(lambda spec: spec['normalizer'].update(strip_accents=True), 'café'),
  lowercase=(lambda spec: spec['normalizer'].update(lowercase=True), 'The quick'),
  chinese=(lambda spec: spec['normalizer'].update(handle_chinese_chars=False), '今天'),
  shifted=(shift, 'the lazy dog'),
  added=(split_off, 'The quick'),
  mask=(lambda spec: spec['added_tokens'].pop(), 'mask'),
  template=(lambda spec: spec['post_processor']['pair'].pop(), 'input_ids of'),
  types=(
    lambda spec: spec['post_processor']['pair'][-1]['SpecialToken'].update(type_id=0),
    'token_type_ids of',
  ),
)


@mutation('found = _of_texts(vocabulary, theirs) + found', 'pass')
@mutation(' + _around(vocabulary, theirs, layouts.known(family), told)', '', case='template')
@pytest.mark.parametrize('name', PLANTED)
def test_planted_faults_are_reported(shared, tmp_path, name):
  vocabulary = published.vocabulary(shared, 'bert-base-cased')
  write(vocabulary, tmp_path, 'bert', 64)
  spec = json.loads((tmp_path / 'tokenizer.json').read_text(encoding='utf-8'))
  plant, seen = PLANTED[name]
  plant(spec)
  (tmp_path / 'tokenizer.json').write_text(json.dumps(spec), encoding='utf-8')
  if name == 'mask':  # a token that no text gives
    change(tmp_path / 'tokenizer_config.json', added_tokens_decoder={}, mask_token='[UNK]')
  found = differences(vocabulary, tmp_path, 'bert')
  assert any(seen in line for line in found), found


def save_model(path, texts, name='sentencepiece.bpe.model'):
  """A SentencePiece model under this name."""
  trained(path, texts, pad_id=-1, control_symbols=[])
  return (path / 'spiece.model').rename(path / name)


@mutation('if file.name != FAIRSEQ:', 'if file.name:')
def test_the_model_of_xlm_r_has_the_ids_of_fairseq(lines, tmp_path):
  texts = lines[:300]
  file = save_model(tmp_path / 'xlmr', texts)
  vocabulary = load_vocabulary(file.parent)
  plain = sentencepiece.SentencePieceProcessor(model_file=str(file))
  shifted = {0: 3, 1: 0, 2: 2}
  wanted = [[shifted.get(i, i + 1) for i in ids] for ids in plain.encode(texts)]
  assert ids_of(vocabulary, texts) == wanted
  size = plain.get_piece_size() + 2
  assert vocabulary.special == dict(cls=0, pad=1, sep=2, unk=3, mask=size - 1)
  theirs = transformers.XLMRobertaTokenizer.from_pretrained(str(file.parent))
  assert len(theirs) == vocabulary.size == size
  assert theirs.get_vocab() == {piece: i for i, piece in enumerate(vocabulary.pieces)}
  assert vocabulary.decode(wanted[0]) == plain.decode(plain.encode(texts[0]))
  vocabulary.save(tmp_path / 'run')
  assert ids_of(load_vocabulary(tmp_path / 'run'), texts) == wanted
  check(vocabulary, tmp_path / 'export', 'xlm-roberta', texts)
  assert (tmp_path / 'export/sentencepiece.bpe.model').is_file()
  theirs.save_pretrained(str(tmp_path / 'json'))  # tokenizer.json alone
  json_alone = load_vocabulary(tmp_path / 'json')
  assert json_alone.special == vocabulary.special
  assert ids_of(json_alone, ['A cat']) == ids_of(vocabulary, ['A cat'])


@mutation("return dict(pieces=[*pieces, '[MASK]'],", 'return dict(pieces=pieces,')
def test_the_model_of_deberta_has_its_mask_behind_the_last_piece(lines, tmp_path):
  texts, path = lines[:300], tmp_path / 'deberta'
  roles = dict(pad='[PAD]', bos='[CLS]', eos='[SEP]', unk='[UNK]')
  ids = {f'{role}_id': i for i, role in enumerate(roles)}
  trained(path, texts, control_symbols=[], **ids, **{f'{k}_piece': v for k, v in roles.items()})
  file = (path / 'spiece.model').rename(path / 'spm.model')
  vocabulary = load_vocabulary(file)
  theirs = transformers.DebertaV2Tokenizer.from_pretrained(str(path))
  assert len(theirs) == vocabulary.size
  roles = {
    role: getattr(theirs, f'{role}_token_id') for role in ('cls', 'pad', 'sep', 'unk', 'mask')
  }
  assert vocabulary.special == roles and roles['mask'] == vocabulary.size - 1
  plain = sentencepiece.SentencePieceProcessor(model_file=str(file))
  assert ids_of(vocabulary, texts) == plain.encode(texts)
  # Theirs does not change characters as the model does: a no-break space is unknown to it.
  ascii_ = [text for text in texts if text.isascii()]
  assert ids_of(vocabulary, ascii_) == theirs(ascii_, add_special_tokens=False)['input_ids']
  ids = ids_of(vocabulary, texts)[1]
  assert vocabulary.decode([*ids, roles['mask']]) == plain.decode(ids)
  vocabulary.save(tmp_path / 'run')
  assert ids_of(load_vocabulary(tmp_path / 'run'), texts) == ids_of(vocabulary, texts)
  check(vocabulary, tmp_path / 'export', 'deberta_v2', texts)


def test_added_tokens_of_tokenizer_json_have_their_ids(shared, tmp_path):
  theirs = transformers.BertTokenizer.from_pretrained(str(shared / 'tokenizers/bert-base-cased'))
  theirs.add_tokens(['newword'])
  theirs.add_special_tokens(dict(additional_special_tokens=['[NEW]']))
  theirs.save_pretrained(str(tmp_path))
  vocabulary = load_vocabulary(tmp_path)
  assert vocabulary.size == len(theirs) == 28_998
  assert vocabulary.pieces[-2:] == ['newword', '[NEW]']
  assert vocabulary.special == dict(cls=101, sep=102, pad=0, mask=103, unk=100)
  assert differences(vocabulary, tmp_path, 'bert') == []
  assert ids_of(vocabulary, ['a newword'])[0] == [170, 28_996]
