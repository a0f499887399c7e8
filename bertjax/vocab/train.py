"""Trains vocabularies from a sample of sentences, of words, characters and bytes from all; equal
sentences give equal files, byte for byte."""

import collections
import functools
import io
import itertools
import json
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import BertProcessing, RobertaProcessing

from bertjax.errors import UserError
from bertjax.vocab import formats, whole_words
from bertjax.vocab.special import ROLES, SENTINELS
from bertjax.vocab.vocabulary import Vocabulary

# Rarer characters than these become [UNK], as in `BertWordPieceTokenizer` of tokenizers; but where
# the text has more, as Chinese has, those that are this share of it do not.
_ALPHABET = 1000
_COVERED = 0.9995
# Sums of floats depend on how many threads there are, so this may not follow the machine.
_THREADS = 4
_LONGEST = 100  # characters of a word; longer ones are [UNK]
WORDPIECE = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
_BPE = ['<s>', '<pad>', '</s>', '<unk>']  # and <mask> last, as in RoBERTa


def train_wordpiece(
  sentences: Sequence[str],
  size: int,
  lowercase: bool,
  directory: pathlib.Path,
  keep_accents: bool = False,
) -> None:
  """Writes vocab.txt, tokenizer.json and tokenizer_config.json of BERT, with so many pieces, the
  five special ones included, or all that the sample has. Lowercase strips accents too, unless
  `keep_accents`."""
  tokenizer = Tokenizer(models.WordPiece(unk_token='[UNK]'))
  strips = False if keep_accents else None  # None: as lowercase
  tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strips)
  tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
  common, covering = _characters(tokenizer.normalizer, sentences)
  # Each comes twice, at the beginning of a word and inside: a quarter of the pieces at most.
  alphabet = sorted(common[: min(max(_ALPHABET, covering), size // 4)])
  # The trainer numbers the ##-characters in the order of a hash table that differs from run to run,
  # and breaks ties by number. Given as special pieces they have their numbers before it starts.
  inner = ['##' + character for character in alphabet]
  trainer = trainers.WordPieceTrainer(
    vocab_size=size,
    special_tokens=WORDPIECE + inner,
    initial_alphabet=alphabet,
    limit_alphabet=len(alphabet),
    show_progress=False,
  )
  tokenizer.train_from_iterator(sentences, trainer)
  index = tokenizer.get_vocab()
  _write_wordpiece(sorted(index, key=index.__getitem__), tokenizer, lowercase, strips, directory)


def extend_wordpiece(
  sentences: Iterable[str], size: int, base: Vocabulary, directory: pathlib.Path
) -> None:
  """Writes the files of `train_wordpiece` with the pieces of `base`, whose ids stay, and behind
  them the words of the sample that save most tokens, an unknown one counting as one, until there
  are `size`, or all that occur twice."""
  tokenizer: Any = base.tokenizer
  counts: collections.Counter[str] = collections.Counter()
  for sentence in sentences:
    normal = tokenizer.normalizer.normalize_str(sentence)
    counts.update(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal))
  words = sorted(word for word, count in counts.items() if count > 1 and len(word) <= _LONGEST)
  unknown = base.special['unk']
  cut = zip(words, base.encode_batch(words), strict=True)
  saved = {w: counts[w] * (len(ids) - 1 + (unknown in ids)) for w, ids in cut}
  new = sorted((word for word in words if saved[word]), key=lambda word: -saved[word])
  pieces = [*base.pieces, *new[: size - base.size]]
  strips = not base.accents if base.accents == base.lowercase else None
  added = list(tokenizer.get_added_tokens_decoder().values())
  _write_wordpiece(pieces, tokenizer, base.lowercase, strips, directory, added)


def _write_wordpiece(
  pieces: Sequence[str],
  tokenizer: Tokenizer,
  lowercase: bool,
  strips: bool | None,
  directory: pathlib.Path,
  added: Sequence[Any] = (),
) -> None:
  vocabulary = {piece: i for i, piece in enumerate(pieces)}
  whole = Tokenizer(
    models.WordPiece(vocabulary, unk_token='[UNK]', max_input_chars_per_word=_LONGEST)
  )
  whole.normalizer, whole.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
  whole.decoder = decoders.WordPiece()
  whole.post_processor = BertProcessing(
    ('[SEP]', vocabulary['[SEP]']), ('[CLS]', vocabulary['[CLS]'])
  )
  whole.add_special_tokens(WORDPIECE)
  whole.add_tokens([*added])
  files = {'vocab.txt': '\n'.join(pieces) + '\n'}
  formats.write(directory, files | _whole(whole, 'BertTokenizer', lowercase, strip_accents=strips))


def train_bpe(
  sentences: Sequence[str], size: int, lowercase: bool, directory: pathlib.Path
) -> None:
  """Writes vocab.json, merges.txt, tokenizer.json and tokenizer_config.json of RoBERTa, with so
  many pieces, the five special ones and 256 bytes included, or all that the sample has."""
  tokenizer = Tokenizer(models.BPE())
  if lowercase:
    tokenizer.normalizer = normalizers.Lowercase()
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  trainer = trainers.BpeTrainer(
    vocab_size=size - 1,
    special_tokens=_BPE,
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
  )
  tokenizer.train_from_iterator(sentences, trainer)
  model = json.loads(tokenizer.to_str())['model']
  index = model['vocab'] | {'<mask>': len(model['vocab'])}
  merges = [tuple(merge) for merge in model['merges']]
  whole = Tokenizer(models.BPE(index, merges))
  if lowercase:
    whole.normalizer = normalizers.Lowercase()
  whole.pre_tokenizer = tokenizer.pre_tokenizer
  whole.decoder = decoders.ByteLevel()
  whole.post_processor = RobertaProcessing(
    ('</s>', index['</s>']), ('<s>', index['<s>']), add_prefix_space=False
  )
  whole.add_special_tokens([*_BPE, '<mask>'])
  files = {
    'vocab.json': json.dumps(index, ensure_ascii=False, separators=(',', ':')),
    'merges.txt': '#version: 0.2\n' + ''.join(f'{a} {b}\n' for a, b in merges),
  }
  # transformers' RobertaTokenizer would not lowercase, whatever tokenizer.json says.
  name = 'PreTrainedTokenizerFast' if lowercase else 'RobertaTokenizer'
  formats.write(directory, files | _whole(whole, name, lowercase))


def train_unigram(
  sentences: Sequence[str], size: int, lowercase: bool, directory: pathlib.Path
) -> None:
  """Writes spiece.model, a SentencePiece unigram model, and tokenizer_config.json; <pad>, <unk>,
  <s>, </s>, <mask> and <eod> have the ids 0 to 5. Raises UserError if the sample is too small for
  so many pieces."""
  ids = dict(pad_id=0, unk_id=1, bos_id=2, eos_id=3)
  symbols = ['<mask>', '<eod>']  # XLNet's documents end with the latter
  model = _unigram(sentences, size, lowercase, control_symbols=symbols, **ids)
  formats.write(directory, {'spiece.model': model, **_config(dict(do_lower_case=lowercase))})


def train_t5(sentences: Sequence[str], size: int, lowercase: bool, directory: pathlib.Path) -> None:
  """Writes spiece.model and tokenizer_config.json as T5 has them: <pad>, </s>, <unk>, pieces, and
  last the SENTINELS, <extra_id_0> with the highest id. UserError: too small a sample."""
  ids = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
  proto: Any = sentencepiece_model_pb2
  model = proto.ModelProto.FromString(_unigram(sentences, size - SENTINELS, lowercase, **ids))
  for number in reversed(range(SENTINELS)):
    kind = proto.ModelProto.SentencePiece.USER_DEFINED
    model.pieces.add(piece=f'<extra_id_{number}>', score=0.0, type=kind)
  said = dict(tokenizer_class='T5Tokenizer', extra_ids=0, do_lower_case=lowercase)
  formats.write(directory, {'spiece.model': model.SerializeToString(), **_config(said)})


def _unigram(sentences: Sequence[str], size: int, lowercase: bool, **ids: Any) -> bytes:
  model = io.BytesIO()
  try:
    sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=iter([s.lower() for s in sentences] if lowercase else sentences),
      model_writer=model,
      model_type='unigram',
      vocab_size=size,
      character_coverage=0.9995,
      max_sentence_length=2**16,
      num_threads=_THREADS,
      minloglevel=2,
      **ids,
    )
  except RuntimeError as error:
    raise UserError(
      f'sentencepiece cannot train {size} pieces on this text: {error}; expected a --size between '
      'the number of its characters and that of its substrings'
    ) from error
  return model.getvalue()


def train_stream(
  kind: str, sentences: Iterable[str], size: int, lowercase: bool, directory: pathlib.Path
) -> None:
  """Writes tokenizer.json, as `whole_words.train` makes it, and tokenizer_config.json."""
  tokenizer = whole_words.train(kind, sentences, size, lowercase)
  names = dict(unk_token='<unk>', pad_token='<pad>', eos_token=whole_words.END[kind])
  name = 'PreTrainedTokenizerFast'
  config = _config(dict(tokenizer_class=name, do_lower_case=lowercase, **names))
  formats.write(directory, {'tokenizer.json': tokenizer, **config})


TRAINERS: dict[str, Callable] = dict(
  wordpiece=train_wordpiece,
  bpe=train_bpe,
  unigram=train_unigram,
  t5=train_t5,
  **{kind: functools.partial(train_stream, kind) for kind in whole_words.END},
)


def characters(
  sentences: Sequence[str], lowercase: bool, keep_accents: bool = False
) -> tuple[int, int]:
  """Returns how many characters a text has for WordPiece, and the least size of a vocabulary that
  keeps those which make up 99.95% of it."""
  strips = False if keep_accents else None
  normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strips)
  common, covering = _characters(normalizer, sentences)
  return len(common), 4 * min(covering, len(common))


def _characters(normalizer, sentences: Sequence[str]) -> tuple[list[str], int]:
  """Returns the characters, frequent ones first, and how many of them cover the text."""
  counts: collections.Counter[str] = collections.Counter()
  for sentence in sentences:
    counts.update(normalizer.normalize_str(sentence))
  counts.pop(' ', None)
  common = sorted(counts, key=lambda character: (-counts[character], character))
  until = itertools.accumulate(counts[character] for character in common)
  return common, 1 + sum(count < _COVERED * counts.total() for count in until)


def _whole(tokenizer: Tokenizer, name: str, lowercase: bool, **options: Any) -> dict[str, str]:
  """tokenizer.json and tokenizer_config.json, by name."""
  pieces = set(tokenizer.get_vocab())
  special = {
    f'{role}_token': next(name for name in names if name in pieces) for role, names in ROLES.items()
  }
  config = _config(dict(tokenizer_class=name, do_lower_case=lowercase, **special, **options))
  return {'tokenizer.json': tokenizer.to_str(pretty=True), **config}


def _config(config: dict) -> dict[str, str]:
  return {formats.CONFIG: json.dumps(config, indent=1) + '\n'}
