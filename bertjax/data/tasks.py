"""The text Tasks and Mixtures that come with bertjax; importing this module registers them.

  python_docs          the documentation that every Python carries
  wikipedia, wiki40b, c4, lm1b, books    from TFDS; books are those of Project Gutenberg (PG-19),
                       since the BookCorpus of the papers is not to be had
  wikipedia_books      a Mixture of two, in proportion to their documents
  wiki40b_LANGUAGE, wiki40b_languages    a Mixture over languages, p ~ documents^0.7

A user's module does the same with its own (`--module`), and its names work like these.
"""

import seqio

from bertjax.data import python_docs
from bertjax.data.sources import size_of, stream_task, tfds_task

# Of the smoothed language sampling of multilingual BERT (google-research/bert, multilingual.md).
SMOOTHING = 0.7
LANGUAGES = 'ar de en es fr hi id it ja ko nl pt ru tr vi zh-cn'.split()


def smoothed(task: seqio.Task, alpha: float = SMOOTHING) -> float:
  """A mixing rate ~ documents^alpha: small languages are drawn more often than their share."""
  return documents_of(task) ** alpha


def documents_of(task: seqio.Task) -> float:
  """A mixing rate ~ documents: the mixture of one pass over all members.

  Raises:
    ValueError: TFDS has not generated the data yet, so their number is not known.
  """
  size = size_of(task)
  if size is None:
    raise ValueError(
      f'{task.name}: the number of documents is not known before the data are there. Generate them '
      'with `tfds build`, or mix with rates of your own'
    )
  return float(size)


def _register_corpora() -> None:
  add = seqio.TaskRegistry.add_provider
  add('python_docs', stream_task('python_docs', python_docs.documents))
  for name, tfds_name, field in (
    ('wikipedia', 'wikipedia/20230601.en:1.0.0', 'text'),
    ('wiki40b', 'wiki40b/en:1.3.0', 'text'),
    ('c4', 'c4/en:3.1.0', 'text'),
    ('lm1b', 'lm1b:1.1.0', 'text'),
    ('books', 'pg19:0.1.1', 'book_text'),
  ):
    add(name, tfds_task(name, tfds_name, field))
  seqio.MixtureRegistry.add('wikipedia_books', ['wikipedia', 'books'], default_rate=documents_of)
  names = {language: f'wiki40b_{language.replace("-", "_")}' for language in LANGUAGES}
  for language, name in names.items():
    add(name, tfds_task(name, f'wiki40b/{language}:1.3.0'))
  seqio.MixtureRegistry.add('wiki40b_languages', list(names.values()), default_rate=smoothed)


_register_corpora()
