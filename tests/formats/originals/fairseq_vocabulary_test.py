"""dict.txt of fairseq becomes a vocabulary with the ids that the checkpoint was trained with."""

import gzip
import json

import numpy as np
import published
import pytest
from mutation import mutation
from slow_imports import sentencepiece, transformers

from bertjax.formats import tokenizer
from bertjax.formats.originals import fairseq_vocabulary
from bertjax.vocab.vocabulary import load_vocabulary


def beside(path, size):
  """The vocabulary of the files beside a checkpoint, and what is said of it."""
  return fairseq_vocabulary.beside(path / 'model.pt', size)


def dictionary(path, symbols) -> None:
  (path / 'dict.txt').write_text(''.join(f'{s} {9 - i % 9}\n' for i, s in enumerate(symbols)))


@mutation('index = {piece_of.get(symbol, symbol): i', 'index = {symbol: i')
def test_a_dictionary_of_byte_level_bpe(shared, tmp_path):
  """The published dict.txt of RoBERTa has GPT-2's ids by falling frequency."""
  ours = json.loads((shared / 'tokenizers/roberta/vocab.json').read_text())
  gpt2 = json.loads((shared / 'tokenizers/gpt2/vocab.json').read_text())
  symbols = sorted(ours, key=ours.get)[4:-1]
  dictionary(tmp_path, [str(gpt2.get(symbol, symbol)) for symbol in symbols])
  none, said = beside(tmp_path, len(ours))
  assert none is None and 'encoder.json and vocab.bpe are not beside it' in said[0]
  (tmp_path / 'encoder.json').write_text(json.dumps(gpt2))
  merges = (shared / 'tokenizers/gpt2/merges.txt').read_bytes()
  (tmp_path / 'vocab.bpe').write_bytes(merges)
  mine, said = beside(tmp_path, len(ours))
  text = ['Hello, world!  £5 — 北京 naïve 😀', 'and <mask> is text']
  theirs = published.vocabulary(shared, 'roberta')
  assert said == [] and mine.size == theirs.size == len(ours) and mine.special == theirs.special
  for one, two in zip(mine.encode_batch(text), theirs.encode_batch(text), strict=True):
    np.testing.assert_array_equal(one, two)


@mutation("Replace(Regex(rf'\\A +|[ {SPACE}]+\\z'), '')", "Replace(Regex(rf'\\A +'), '')")
def test_a_dictionary_of_sentencepiece(shared, tmp_path):
  """As XLM-R's: the pieces of a unigram model but its three control pieces, one id further."""
  model = shared / 'golden/sentencepiece/test_model.model'
  processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
  pieces = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]
  dictionary(tmp_path, pieces)
  (tmp_path / 'sentencepiece.bpe.model').write_bytes(model.read_bytes())
  vocabulary, said = beside(tmp_path, len(pieces) + 5)
  assert said == [] and vocabulary.special == dict(cls=0, sep=2, pad=1, mask=len(pieces) + 4, unk=3)
  texts = (
    'I saw a girl with a telescope.',
    'Ｆｕｌｌ width',
    'two  spaces, "quotes"',
    'a b ',
    '  a',
    '',
  )
  for text in (*texts, ' ', 'a \u2581', 'cafe\u0301 au lait'):
    (ids,) = vocabulary.encode_batch([text])
    want = [3 if i == 0 else i + 1 for i in processor.encode(text)]
    assert ids.tolist() == want, text


class Dictionary:
  """`Dictionary.add_from_file` and `index` of fairseq, and <mask> as its tasks add it."""

  def __init__(self, lines):
    self.symbols, self.indices = [], {}
    for symbol in ('<s>', '<pad>', '</s>', '<unk>'):
      self.add(symbol)
    for line in lines:
      symbol, field = line.rsplit(' ', 1)
      overwrite = field == '#fairseq:overwrite'
      self.add(symbol.rsplit(' ', 1)[0] if overwrite else symbol, overwrite)
    self.add('<mask>')

  def add(self, symbol, overwrite=False):
    if symbol not in self.indices or overwrite:
      self.indices[symbol] = len(self.symbols)
      self.symbols.append(symbol)

  def ids(self, pieces):
    return [self.indices.get(piece, 3) for piece in ' '.join(pieces).split()]


def botchan(shared):
  path = shared / 'golden/sentencepiece/botchan.txt'
  texts = path.read_text(encoding='utf-8-sig').splitlines()[:400]
  return [*texts, '漢字 and a Ｆｕｌｌ width', 'madeup words', '  a', '']


# What a dict.txt may be besides all pieces in their order.
LACKING = dict(
  pieces_that_are_not_there=lambda lines: lines[::2],
  another_order=lambda lines: lines[::-1],
  rounded_up=lambda lines: [*lines[::3], 'madeupword0000 0', 'madeupword0001 0'],
  symbols_with_spaces=lambda lines: ['New York 7', *lines[1:200], '  3'],
  a_mask_inside=lambda lines: [*lines[:20], '<mask> 1', *lines[30:]],
  symbols_again=lambda lines: [
    *lines[:300],
    *(f'{line} #fairseq:overwrite' for line in (lines[3], lines[7], lines[3])),
  ],
  camembert=lambda lines: [
    *(f'{symbol} 999 #fairseq:overwrite' for symbol in ('<unk>', '<s>', '</s>')),
    *lines[:700],
  ],
)


@mutation(
  'scored |= {piece: score for piece, score in scores.items() if piece not in scored}',
  'pass',
  case='pieces_that_are_not_there',
)
@mutation('[symbol] = len(symbols)', '.setdefault(symbol, len(symbols))', case='symbols_again')
@mutation("known[most:] = index['<unk>']", 'pass', case='rounded_up')
@pytest.mark.parametrize('change', LACKING.values(), ids=LACKING)
def test_pieces_that_the_dictionary_lacks_are_unknown(shared, tmp_path, change):
  """And the text is cut as sentencepiece cuts it."""
  model = shared / 'golden/sentencepiece/test_model.model'
  processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
  pieces = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]
  lines = change([f'{piece} 5' for piece in pieces if piece != '\r'])
  theirs = Dictionary(lines)
  (tmp_path / 'dict.txt').write_text('\n'.join(lines) + '\n')
  (tmp_path / 'sentencepiece.bpe.model').write_bytes(model.read_bytes())
  vocabulary, said = beside(tmp_path, len(theirs.symbols))
  texts = botchan(shared)
  assert said == [] and vocabulary.size == len(theirs.symbols)
  wanted = [theirs.ids(processor.encode(text, out_type=str)) for text in texts]
  assert [ids.tolist() for ids in vocabulary.encode_batch(texts)] == wanted
  assert vocabulary.encode_spans(texts)[0].tolist() == sum(wanted, [])
  special = dict(cls='<s>', sep='</s>', mask='<mask>')
  special = {role: theirs.indices[name] for role, name in special.items()} | dict(pad=1, unk=3)
  assert vocabulary.special == special
  vocabulary.save(tmp_path / 'copy')
  copy = load_vocabulary(tmp_path / 'copy')
  assert copy.meta == vocabulary.meta
  assert [ids.tolist() for ids in copy.encode_batch(texts)] == wanted
  with pytest.raises(ValueError, match='makes some pieces unknown.*export without the tokenizer'):
    tokenizer.write(vocabulary, tmp_path / 'x', 'roberta', 64)


@mutation("KEPT = ('<pad>', '<unk>')", 'KEPT = ()')
def test_the_dictionary_of_camembert(shared, tmp_path):
  """transformers has its ids: those of the model, four further."""
  with gzip.open(shared / 'multilingual/parallel/laser_tatoeba/fra-eng.tsv.gz', 'rt') as file:
    lines = [line.split('\t')[0].strip() for line, _ in zip(file, range(700), strict=False)]
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(lines), model_prefix=str(tmp_path / 'sentencepiece.bpe'),
    vocab_size=900, character_coverage=1.0, minloglevel=2, num_threads=1,
  )  # fmt: skip
  theirs = transformers.CamembertTokenizer.from_pretrained(str(tmp_path))
  processor = sentencepiece.SentencePieceProcessor(str(tmp_path / 'sentencepiece.bpe.model'))
  again = {'<unk>', '<s>', '</s>'}
  pieces = [processor.id_to_piece(i) for i in range(900)]
  symbols = [f'{p} 999{" #fairseq:overwrite" * (p in again)}\n' for p in pieces]
  (tmp_path / 'dict.txt').write_text(''.join(symbols))
  ours, said = beside(tmp_path, 905)
  assert said == [] and ours.size == len(theirs) == 905
  assert list(ours.pieces) == theirs.convert_ids_to_tokens(range(905))
  assert ours.special == {role: getattr(theirs, f'{role}_token_id') for role in ours.special}
  got = [ids.tolist() for ids in ours.encode_batch(lines)]
  assert got == theirs(lines, add_special_tokens=False)['input_ids']
  tokenizer.write(ours, tmp_path / 'x', 'roberta', 64)
  exported = transformers.AutoTokenizer.from_pretrained(str(tmp_path / 'x'))
  assert exported(lines, add_special_tokens=False)['input_ids'] == got


@mutation('index.setdefault(piece, len(index))', 'pass')
def test_byte_level_pieces_that_the_dictionary_lacks_are_unknown(shared, tmp_path):
  gpt2 = json.loads((shared / 'tokenizers/gpt2/vocab.json').read_text())
  lines = [f'{number} 5' for number in list(gpt2.values())[::-3]]
  theirs = Dictionary(lines)
  (tmp_path / 'dict.txt').write_text('\n'.join(lines))
  (tmp_path / 'encoder.json').write_text(json.dumps(gpt2))
  merges = (shared / 'tokenizers/gpt2/merges.txt').read_bytes()
  (tmp_path / 'vocab.bpe').write_bytes(merges)
  ours, said = beside(tmp_path, len(theirs.symbols))
  texts = botchan(shared)
  original = transformers.GPT2Tokenizer.from_pretrained(str(shared / 'tokenizers/gpt2'))
  wanted = [theirs.ids(map(str, ids)) for ids in original(texts)['input_ids']]
  assert said == [] and ours.size == len(theirs.symbols)
  assert [ids.tolist() for ids in ours.encode_batch(texts)] == wanted
  assert ours.encode_spans(texts)[0].tolist() == sum(wanted, [])


@pytest.mark.parametrize(
  'lines, message',
  [
    ('a 1\nb\n', "line 2: expected 'SYMBOL COUNT', got 'b'"),
    ('a 1\nb #fairseq:overwrite\n', "line 2: expected 'SYMBOL COUNT', got 'b #fairseq:overwrite'"),
    ('a 1\na 2\n', "line 2: 'a' has the id 4 already: expected every symbol once, or #fairseq"),
    ('a 1\n<unk> 2\n', "line 2: '<unk>' has the id 3 already"),
  ],
)
def test_a_dictionary_that_is_none_is_refused(lines, message, tmp_path):
  (tmp_path / 'dict.txt').write_text(lines)
  with pytest.raises(ValueError, match=message):
    beside(tmp_path, 7)
