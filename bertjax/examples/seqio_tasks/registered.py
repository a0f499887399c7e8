"""The seqio Tasks and Mixtures that come with bertjax; importing this module registers them.

Text, whose examples are documents, for `prepare` and for example Tasks:

  python_docs          the documentation that every Python carries
  wikipedia, wiki40b, c4, lm1b, books    from TFDS; books are those of Project Gutenberg (PG-19),
                       since the BookCorpus of the papers is not to be had
  wikipedia_books      a Mixture of two, in proportion to their documents
  wiki40b_LANGUAGE, wiki40b_languages    a Mixture over languages, p ~ documents^0.7

Complete training examples, 128 tokens of BERT and 512 of RoBERTa, with a vocabulary that is trained
on the text at first use and kept in ~/.cache/bertjax:

  python_docs_bert_pairs, wikipedia_bert_pairs, books_bert_pairs; bert_pairs, a Mixture of the last
  two in the proportion of BERT's paper; the same four with roberta_sentences, albert_pairs,
  spanbert_blocks, electra_segments, ernie_pairs and distilbert_sequences for bert_pairs

A user's module does the same with its own (`config.data.module`), and its names work like these:

  seqio.TaskRegistry.add_provider('letters', corpora.stream_task('letters', read_letters))
  add_examples('letters_pairs', 'letters', 'DIR_WITH_vocab.txt', recipes.BERT_PAIRS, length=128)

  seqio.get_mixture_or_task('letters_pairs').get_dataset(None, split='train', shuffle=False)
"""

import contextlib
import functools
import itertools
import pathlib
import tempfile

from bertjax.errors import UserError
from bertjax.examples import recipes
from bertjax.examples.seqio_tasks import names
from bertjax.examples.seqio_tasks.corpora import open_corpus, size_of, stream_task, tfds_task
from bertjax.examples.seqio_tasks.example_tasks import add_examples
from bertjax.examples.seqio_tasks.loaded import seqio
from bertjax.machine import copies
from bertjax.text import python_docs, sentence_split
from bertjax.text.corpus import PYTHON_DOCS
from bertjax.vocab.train import TRAINERS

# Exponent of language sampling in multilingual BERT (google-research/bert, multilingual.md).
SMOOTHING = 0.7
# Millions of words, Devlin et al. 2018, section 3.1; examples are of one length, so a share of the
# words is a share of the examples.
_WORDS = dict(wikipedia=2500, books=800)
_SAMPLE = 50_000  # documents that a vocabulary is trained on


def smoothed(task: seqio.Task, alpha: float = SMOOTHING) -> float:
  """Returns a mixing rate ~ documents^alpha, which draws small languages more often."""
  return documents_of(task) ** alpha


def documents_of(task: seqio.Task) -> float:
  """Returns a mixing rate ~ documents: the mixture of one pass over all members."""
  size = size_of(task)
  if size is None:
    raise UserError(
      f'{task.name}: the number of documents is not known before the data are there. Generate them '
      'with `tfds build`, or mix with rates of your own'
    )
  return float(size)


def trained_vocabulary(text: str, kind: str, size: int) -> str:
  """Returns the path of a vocabulary of at most `size` pieces, trained on the first documents of a
  text at the first call; `kind` is 'wordpiece', of lowercased text, 'bpe' or 'unigram'."""
  path = copies.cache() / 'vocab' / f'{text}-{kind}-{size}'
  if not path.exists():
    path.parent.mkdir(parents=True, exist_ok=True)
    corpus = open_corpus(text)
    how = corpus.detect()
    documents = itertools.islice(itertools.chain.from_iterable(corpus.texts()), _SAMPLE)
    sentences = [s for d in documents for s in sentence_split.split_document(d.decode(), how)]
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
      made = pathlib.Path(directory, 'made')
      made.mkdir()
      TRAINERS[kind](sentences, size, kind == 'wordpiece', made)
      with contextlib.suppress(FileExistsError):  # of another process, and equal
        made.rename(path)
  return str(path)


def _register_corpora() -> None:
  add = seqio.TaskRegistry.add_provider
  add(PYTHON_DOCS, stream_task(PYTHON_DOCS, python_docs.documents))
  for name, (tfds_name, field) in names.TFDS.items():
    add(name, tfds_task(name, tfds_name, field))
  seqio.MixtureRegistry.add(
    names.WIKIPEDIA_BOOKS, ['wikipedia', 'books'], default_rate=documents_of
  )
  for language, name in names.WIKI40B.items():
    add(name, tfds_task(name, f'wiki40b/{language}:1.3.0', language=language))
  seqio.MixtureRegistry.add(
    names.WIKI40B_LANGUAGES, list(names.WIKI40B.values()), default_rate=smoothed
  )


def _register_examples() -> None:
  for name, recipe, length, kind, pieces in (
    ('bert_pairs', recipes.BERT_PAIRS, 128, 'wordpiece', 30522),
    ('roberta_sentences', recipes.ROBERTA_SENTENCES, 512, 'bpe', 50265),
    ('albert_pairs', recipes.ALBERT_PAIRS, 512, 'unigram', 30000),
    ('spanbert_blocks', recipes.SPANBERT_BLOCKS, 512, 'wordpiece', 30522),
    ('electra_segments', recipes.ELECTRA_SEGMENTS, 128, 'wordpiece', 30522),
    ('ernie_pairs', recipes.ERNIE_PAIRS, 512, 'wordpiece', 30522),
    ('distilbert_sequences', recipes.DISTILBERT_SEQUENCES, 512, 'wordpiece', 30522),
  ):
    small = functools.partial(trained_vocabulary, 'python_docs', kind, 8192)
    add_examples(f'python_docs_{name}', 'python_docs', small, recipe, length)
    shared = functools.partial(trained_vocabulary, 'wikipedia', kind, pieces)
    for text in _WORDS:
      add_examples(f'{text}_{name}', text, shared, recipe, length)
    members = [(f'{text}_{name}', words) for text, words in _WORDS.items()]
    seqio.MixtureRegistry.add(name, members)


_register_corpora()
_register_examples()
