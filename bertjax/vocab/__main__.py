"""Trains a vocabulary: python -m bertjax.vocab --input=... --type=wordpiece --size=N --output=DIR

  --type=wordpiece  BERT: vocab.txt               (Rust tokenizers)
  --type=bpe        RoBERTa: vocab.json, merges.txt, over bytes
  --type=unigram    spiece.model                  (sentencepiece)
  --type=t5         the same with T5's 100 sentinels
  --type=words      tokenizer.json, words by frequency, each line ended by <eos>
  --type=characters   the same of characters, each line ended by its newline
  --type=bytes      the same of bytes

`--input` takes what `bertjax.prepare` takes. The text is read once; a Mixture is drawn at its
rates, as many documents as its members have, or --documents. A seeded sample of its sentences
bounds the memory; words, characters and bytes are counted in all of the text. The same text, seed
and flags give the same files.
"""

import functools
import itertools
import pathlib
import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from absl import flags
from rich.console import Console
from rich.table import Table

from bertjax import text_flags
from bertjax.config import command_line
from bertjax.config.keys import LEAST_PIECES
from bertjax.errors import UserError, amount, door
from bertjax.machine import copies, durable
from bertjax.metrics.progress import Bar
from bertjax.text import sentence_split
from bertjax.text.left_out import LeftOut, Wrong
from bertjax.vocab import whole_words
from bertjax.vocab.train import TRAINERS, WORDPIECE, characters, extend_wordpiece
from bertjax.vocab.vocabulary import Vocabulary, load_vocabulary, much_unknown

_TYPE = flags.DEFINE_enum('type', 'wordpiece', list(TRAINERS), 'Kind of vocabulary.')
_SIZE = flags.DEFINE_integer(
  'size', None, 'Pieces, special ones included.', LEAST_PIECES, required=True
)
_SAMPLE = flags.DEFINE_integer(
  'sample', 1_000_000, 'Sentences to train on, drawn from all; about 200 MB of memory a million.', 1
)
_KEEP_ACCENTS = flags.DEFINE_bool(
  'keep_accents', False, 'With --lowercase, WordPiece too keeps accents, vowel signs and tones.'
)
_EXTEND = flags.DEFINE_string(
  'extend',
  '',
  'A WordPiece vocabulary, its file or directory, whose pieces keep their ids: words of the text '
  'that it cuts are added until there are --size. Default: a new vocabulary.',
)
_SEED = flags.DEFINE_integer('seed', 0, 'Seed of the sample.', 0)

_HELD_OUT = 10_000  # sentences for the figures; of a text that is counted whole, its first
_EVERY = 50  # one sentence in so many is held out
_LONGEST = 4096  # characters of a sentence that are used
_LONG_WORDS = 15  # characters of a word on average: the text has no spaces between words


class Sample(NamedTuple):
  """Sentences drawn from a corpus."""

  train: list[str]  # to train on
  held_out: list[str]  # for the figures; never trained on
  seen: int  # how many sentences there were


def draw(sentences: Iterator[str], size: int, seed: int) -> Sample:
  """Draws uniformly, in bounded memory (Vitter's algorithm R), `size` sentences to train on."""
  generator = random.Random(seed)
  sample = Sample([], [], 0)
  counts = [0, 0]
  for number, sentence in enumerate(sentences):
    held_out = number % _EVERY == 1
    reservoir, limit = (sample.held_out, _HELD_OUT) if held_out else (sample.train, size)
    counts[held_out] += 1
    slot = generator.randrange(counts[held_out])
    if len(reservoir) < limit:
      reservoir.append(sentence[:_LONGEST])
    elif slot < limit:
      reservoir[slot] = sentence[:_LONGEST]
  return sample._replace(seen=sum(counts))


def _sentences() -> Iterator[str]:
  corpus = text_flags.open_corpus()
  if corpus.members > 1 and not text_flags.DOCUMENTS.value:
    # One pass over a Mixture would hold its members as they are, not at its rates.
    corpus = text_flags.open_corpus(corpus.documents or _SAMPLE.value)
  split = corpus.detect(text_flags.SPLIT.value)
  documents = 0
  with Bar('vocab: reading') as bar:
    for batch in corpus.texts():
      documents += len(batch)
      bar.show(amount(documents, 'documents'), corpus.done(documents))
      for document in batch:
        yield from _split(document, split, corpus.left_out)
  for name in corpus.left_out.named:
    print(f'left out: {name}')
  if corpus.left_out.count:
    print(f'{corpus.left_out.count:,} bad lines, records and documents left out', flush=True)


def _split(document: bytes, how: str, left_out: LeftOut) -> list[str]:
  try:
    text = sentence_split.decode(document, text_flags.ERRORS.value)
  except UserError as error:
    left_out.refuse(str(text_flags.INPUT.value), Wrong(str(error)))
    return []
  return sentence_split.split_document(text, how)


def _text() -> tuple[Iterable[str], list[str], str]:
  """Returns what to train on, sentences for the figures, and what those are called."""
  sentences = _sentences()
  if _TYPE.value in whole_words.END:
    first = list(itertools.islice(sentences, _HELD_OUT))
    return itertools.chain(first, sentences) if first else [], first, 'first sentences'
  sample = draw(sentences, _SAMPLE.value, _SEED.value)
  if sample.train:
    print(f'training on {len(sample.train):,} of {amount(sample.seen, "sentences")}', flush=True)
  if sample.held_out:
    return sample.train, sample.held_out, 'sentences held out'
  return sample.train, sample.train, 'sentences'


def _base() -> Vocabulary | None:
  """Returns the vocabulary of --extend, None without it. UserError: it is no WordPiece, or too
  large, or another flag would make it another one."""
  if not _EXTEND.value:
    return None
  if _TYPE.value != 'wordpiece' or text_flags.LOWERCASE.value is not None or _KEEP_ACCENTS.value:
    raise UserError(
      '--extend keeps the kind and the rules of its vocabulary: leave out --type, --lowercase and '
      '--keep_accents'
    )
  base = load_vocabulary(_EXTEND.value)
  lacks = ', '.join(piece for piece in WORDPIECE if piece not in base.pieces)
  if base.type != 'wordpiece' or lacks or base.size >= _SIZE.value:
    raise UserError(
      f'--extend={_EXTEND.value} is {base.type} of {base.size:,} pieces, --size={_SIZE.value:,}: '
      f'expected WordPiece with {", ".join(WORDPIECE)}{lacks and f" (it lacks {lacks})"}, of fewer '
      'pieces. Of another kind take the vocabulary as it is, or train one and begin with '
      '--remap_vocab'
    )
  return base


def _train(output: pathlib.Path) -> None:
  """Trains the vocabulary that the flags ask for and prints how well it fits."""
  base = _base()
  keep = {}
  if _TYPE.value == 'wordpiece' and not base:
    keep = dict(keep_accents=_KEEP_ACCENTS.value)
  with durable.directory(output) as partial:  # first: it may be refused
    train, shown, which = _text()
    if not train:
      raise UserError(f'{text_flags.INPUT.value} has no text')
    if base:
      extend_wordpiece(train, _SIZE.value, base, partial)
    else:
      TRAINERS[_TYPE.value](train, _SIZE.value, bool(text_flags.LOWERCASE.value), partial, **keep)
  count = functools.partial(characters, train, bool(text_flags.LOWERCASE.value), **keep)
  _print_table(output, shown, which, count if keep else None)


def _print_table(output: pathlib.Path, sentences: list[str], which: str, count) -> None:
  """Prints how the vocabulary fits sentences; `count` gives `train.characters` of WordPiece."""
  vocabulary = load_vocabulary(output)
  token_n, length_n = vocabulary.encode_flat(sentences)
  words = [len(word) for sentence in sentences for word in sentence.split()]
  letters, unit = max(sum(words), 1), 'word'
  if letters > _LONG_WORDS * len(words):
    words, unit = range(letters), 'character'
  unknown = (token_n == vocabulary.special['unk']).sum() / max(len(token_n), 1)
  warning = much_unknown(unknown)
  table = Table(title=str(output), show_header=False)
  short = (
    f' (asked for {_SIZE.value:,}: there are no more)' if vocabulary.size < _SIZE.value else ''
  )
  table.add_row('pieces', f'{vocabulary.size:,}{short}')
  table.add_row('lowercase', str(vocabulary.lowercase).lower())
  table.add_row('accents', 'kept' if vocabulary.accents else 'stripped')
  table.add_row(f'tokens per {unit}', f'{len(token_n) / max(len(words), 1):.3f}')
  table.add_row('tokens per sentence', f'{length_n.mean():.1f}')
  table.add_row('unknown tokens', f'{unknown:.4%}')
  if count:
    had, size = count()
    table.add_row('characters', f'{had:,}; {size:,} pieces keep 99.95% of the text')
    token_n, _, begin_n, end_n = vocabulary.encode_spans(sentences)
    lost = (end_n - begin_n)[token_n == vocabulary.special['unk']].sum() / letters
    table.add_row('unknown characters', f'{lost:.4%}')
    remedy = f'the text has {had:,} characters, --size={size} keeps 99.95% of it'
    if vocabulary.size >= size:
      remedy = 'words of more than 100 characters are one [UNK]'
    warning = much_unknown(lost, 'characters', f'{remedy}; --type=bpe loses none')
  table.add_row('measured on', f'{len(sentences):,} {which}')
  Console().print(table)
  if warning:
    print(f'Warning: {warning}')


def main() -> None:
  """Trains a vocabulary; a user's mistake ends in one message, not a traceback."""
  with copies.output(text_flags.OUTPUT.value, '') as output:
    durable.free(output)
    _train(output)


flags.adopt_module_key_flags(text_flags)
flags.mark_flag_as_required('input')

if __name__ == '__main__':
  with door('bertjax.vocab'):
    command_line.run(main, 'bertjax.vocab')
