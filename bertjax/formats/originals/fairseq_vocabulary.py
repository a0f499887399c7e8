"""fairseq's dict.txt as a vocabulary that `load_vocabulary` reads.

Ids are <s> <pad> </s> <unk>, then a line of dict.txt each ('SYMBOL COUNT'), then <mask>. What the
symbols are says the file beside it: ids of GPT-2's byte-level BPE (encoder.json and vocab.bpe),
pieces of a SentencePiece model, or, without either, the words or letters of the text themselves.
Pieces that dict.txt lacks are unknown, and text is cut as if it had them: they have ids from
`max_vocab` of tokenizer_config.json on.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from bertjax import json_files
from bertjax.errors import UserError
from bertjax.formats.originals import original
from bertjax.formats.tokenizer import sentencepiece_json
from bertjax.vocab import formats, refusals
from bertjax.vocab.sentencepiece_model import SPACE
from bertjax.vocab.vocabulary import Vocabulary

FIRST, LAST = ('<s>', '<pad>', '</s>', '<unk>'), '<mask>'
DICTIONARY = 'dict.txt'
BPE = ('encoder.json', 'vocab.bpe')
FILLER = 'madeupword'  # symbols that round the number of ids up
AGAIN = '#fairseq:overwrite'  # behind a count: the symbol has this id, and not its former one
UNUSED = 'NOTUSED'  # behind a symbol, at its former id; as CamembertTokenizer of transformers
KEPT = ('<pad>', '<unk>')  # keep their first ids all the same: fairseq does not look them up


def beside(checkpoint: pathlib.Path, vocab_size: int) -> tuple[Vocabulary | None, list[str]]:
  """Returns the vocabulary beside a checkpoint, or None and the reason why there is none. Raises
  UserError if dict.txt is not one."""
  directory = checkpoint.parent
  file = directory / DICTIONARY
  if not file.is_file():
    return None, [f'there is no {DICTIONARY} beside the checkpoint, so no vocabulary']
  symbols = read(file)
  if len(symbols) != vocab_size:
    return None, [
      f'{DICTIONARY} has {len(symbols)} ids with the special ones, the word table {vocab_size} '
      'rows: no vocabulary is made of it'
    ]
  pieces = sorted(directory.glob('*.model'))
  if all((directory / name).is_file() for name in BPE):
    return _byte_level(symbols, directory)
  if len(pieces) == 1:
    return _sentencepiece(symbols, pieces[0])
  own = lambda s: s in (*FIRST, LAST) or s.startswith(FILLER) or s.endswith(UNUSED)
  plain = [symbol for symbol in symbols if not own(symbol)]
  if all(symbol.isdigit() for symbol in plain):
    return None, [f'{DICTIONARY} names ids of a BPE: {" and ".join(BPE)} are not beside it']
  if any(SPACE in symbol or symbol.endswith('@@') for symbol in plain):
    return None, [f'{DICTIONARY} names pieces of words, and the model that cuts them is not there']
  return _whole(symbols, plain), []


def read(file: pathlib.Path) -> list[str]:
  """Returns the symbols of a dict.txt by id, as data/dictionary.py numbers them. Raises UserError
  if a line is not 'SYMBOL COUNT', or a symbol is there again without AGAIN."""
  symbols, index = list(FIRST), {symbol: i for i, symbol in enumerate(FIRST)}
  for number, line in enumerate(refusals.text_of(file).split('\n'), 1):
    if not line:
      continue
    symbol, space, count = line.rstrip().rpartition(' ')
    again = count == AGAIN
    if again:
      symbol, space, count = symbol.rpartition(' ')
    if not space or not count.removeprefix('-').isdigit():
      raise UserError(f"{file}, line {number}: expected 'SYMBOL COUNT', got {line[:80]!r}")
    if symbol in index and not again:
      raise UserError(
        f'{file}, line {number}: {symbol!r} has the id {index[symbol]} already: expected every '
        f'symbol once, or {AGAIN} behind its count'
      )
    index[symbol] = len(symbols)
    symbols.append(symbol)
  symbols += [LAST] * (LAST not in index)
  index |= {symbol: FIRST.index(symbol) for symbol in KEPT}
  for i, symbol in enumerate(symbols):
    while index.setdefault(symbol, i) != i:
      symbol += UNUSED
    symbols[i] = symbol
  return symbols


def _byte_level(symbols: Sequence[str], directory: pathlib.Path):
  """vocab.json and merges.txt, of GPT-2's encoder.json and vocab.bpe."""
  encoder = json_files.read(directory / BPE[0])
  piece_of = {str(number): piece for piece, number in encoder.items()}
  index = {piece_of.get(symbol, symbol): i for i, symbol in enumerate(symbols)}
  if len(index) != len(symbols):
    return None, [f'two symbols of {DICTIONARY} are the same piece of {BPE[0]}']
  for piece in encoder:
    index.setdefault(piece, len(index))
  merges = (directory / BPE[1]).read_bytes()
  files = {'vocab.json': json.dumps(index, ensure_ascii=False), 'merges.txt': merges}
  return _made(files, symbols), []


def _sentencepiece(symbols: Sequence[str], file: pathlib.Path):
  """tokenizer.json: the pieces of a unigram model in the order of dict.txt."""
  try:
    proto = sentencepiece_json.parse(file)
  except UserError as error:
    return None, [str(error)]
  if proto.trainer_spec.model_type != sentencepiece_json.UNIGRAM:
    return None, [f'{file.name} is no unigram model, whose pieces {DICTIONARY} could order']
  scores = sentencepiece_json.scores(proto)
  least = min(scores.values())  # of a symbol that is no piece
  scored = {s: 0.0 if s in (*FIRST, LAST) else scores.get(s, least) for s in symbols}
  scored |= {piece: score for piece, score in scores.items() if piece not in scored}
  fallback = proto.trainer_spec.byte_fallback
  tokenizer = Tokenizer(models.Unigram([*scored.items()], FIRST.index('<unk>'), fallback))
  tokenizer.normalizer = normalizers.Sequence(sentencepiece_json.normalizers_of(proto))
  tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme='never')
  spaces = decoders.Metaspace(SPACE, prepend_scheme='always')
  tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), spaces])
  return _of(tokenizer, symbols), []


def _whole(symbols: Sequence[str], plain: Sequence[str]) -> Vocabulary:
  """tokenizer.json of letters, with or without spaces between them, or of words."""
  index = {symbol: i for i, symbol in enumerate(symbols)}
  tokenizer = Tokenizer(models.WordLevel(index, unk_token='<unk>'))
  cut: list = [pre_tokenizers.WhitespaceSplit()]
  if all(len(symbol) == 1 for symbol in plain):
    cut.append(pre_tokenizers.Split(Regex('.'), 'isolated'))
  tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cut)
  return _of(tokenizer, symbols)


def _of(tokenizer: Tokenizer, symbols: Sequence[str]) -> Vocabulary:
  tokenizer.add_special_tokens([*FIRST, LAST])
  return _made({'tokenizer.json': tokenizer.to_str(pretty=True)}, symbols)


def _made(files: Mapping[str, str | bytes], symbols: Sequence[str]) -> Vocabulary:
  """Returns the vocabulary of files; pieces behind the symbols of dict.txt are unknown."""
  settings = {formats.CONFIG: json.dumps(dict(max_vocab=len(symbols)))}
  return original.vocabulary_of({**files, **settings})
