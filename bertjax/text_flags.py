"""The flags that `prepare` and `vocab` share: which text, and how it is read.

Who needs --input marks it as required.
"""

from typing import Any

from absl import flags

from bertjax.errors import UserError, choose, package
from bertjax.examples.seqio_tasks import names
from bertjax.text import corpus as corpus_lib
from bertjax.text import documents as documents_lib
from bertjax.text import kinds, sentence_split
from bertjax.text.corpus import Corpus

INPUT = flags.DEFINE_string(
  'input',
  None,
  f'Files ({kinds.NAMES}), folders, globs, a comma list of them, each perhaps with its language '
  '(en=FILES) or as parallel text (en-de=FILE+FILE, en-de=FILE.tsv); tfds:NAME; or the name of a '
  'seqio Task or Mixture.',
)
OUTPUT = flags.DEFINE_string(
  'output', None, 'Directory of the result, made in one step at the end.', required=True
)
SPLIT = flags.DEFINE_enum(
  'split',
  sentence_split.AUTO,
  [sentence_split.AUTO, sentence_split.LINES, sentence_split.SENTENCES, sentence_split.VERBATIM],
  'Treatment of lines: lines keeps each as one sentence, sentences splits each into sentences, '
  'auto splits if more than a quarter of the first lines of any part of --input hold several. '
  'verbatim also keeps blank lines and white space, as streams of bytes and words want them; '
  'files are then one stream and not documents. Default: auto.',
)
ERRORS = flags.DEFINE_enum(
  'errors', 'strict', ['strict', 'replace'], 'Bytes that are not UTF-8: refused, or U+FFFD instead.'
)
LOWERCASE = flags.DEFINE_bool(
  'lowercase', None, 'Lowercase the text; by default as the vocabulary says, or one is made: no.'
)
DOCUMENTS = flags.DEFINE_integer(
  'documents', 0, 'Documents to take, a Mixture drawn at its rates; 0: one pass over all.', 0
)
MODULE = flags.DEFINE_string('module', '', 'Python module that registers seqio Tasks.')
FIELD = flags.DEFINE_string(
  'field',
  'text',
  'Field of JSON lines, or column of CSV, TSV, Parquet or TFDS, that holds the text; a.b.c where '
  'it lies in objects.',
)
COLUMNS = flags.DEFINE_list(
  'columns', [], 'Fields or columns to keep for each sentence: language, role.'
)
SKIP_BAD = flags.DEFINE_bool(
  'skip_bad', False, 'Leave out lines, records and documents that are wrong; count and name them.'
)


def open_corpus(documents: int | None = None) -> Corpus:
  """Opens the text that the flags name, or so many documents of it: see `corpora.open_corpus`."""
  for name in COLUMNS.value:
    choose(name, documents_lib.COLUMNS, '--columns')
  take = DOCUMENTS.value if documents is None else documents
  corpus = _opened(
    str(INPUT.value),
    take,
    MODULE.value,
    errors=ERRORS.value,
    field=FIELD.value,
    columns=COLUMNS.value,
    verbatim=SPLIT.value == sentence_split.VERBATIM,
    skip_bad=SKIP_BAD.value,
  )
  lacking = [name for name in COLUMNS.value if name not in corpus.columns]
  if lacking:
    raise UserError(
      f'--columns: {INPUT.value} has no {lacking[0]}, expected some of '
      f'{", ".join(corpus.columns) or "none"}: a Task has those that are its features, files those '
      'of their records'
    )
  return corpus


def _opened(name: str, documents: int, module: str, **how: Any) -> Corpus:
  """`corpora.open_corpus`, but files and python_docs without TensorFlow, which may be missing."""
  if module or name.startswith('tfds:') or name in names.WITH_TENSORFLOW:
    remedy = '-r requirements.txt, or give files'
    load = lambda part: package(f'bertjax.examples.seqio_tasks.{part}', name, remedy)
    load('loaded').leave_gpus()
    load('registered')  # which registers the names
    return load('corpora').open_corpus(name, documents, module, **how)
  if name == corpus_lib.PYTHON_DOCS:
    corpus = corpus_lib.open_python_docs()
  else:
    corpus = names.open_files(name, (corpus_lib.PYTHON_DOCS, *names.WITH_TENSORFLOW), **how)
  return corpus.first(documents) if documents else corpus
