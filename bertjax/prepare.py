"""Turns text into a token store: python -m bertjax.prepare --input=... --vocab=... --output=STORE

  --input='wiki/*.txt.xz'           files, folders, globs, a comma list of them: text, JSON lines,
                                    CSV and TSV with a header, Parquet; .gz, .xz, .bz2, .zst
  --input='en=a/*.txt,de=b/*.txt'   the same, each with its language
  --input='en-de=a.en.gz+a.de.gz'   parallel text: two files of as many lines, or one .tsv
  --input=tfds:wikipedia/20230601.de   a TFDS builder
  --input=python_docs               a registered seqio Task or Mixture; yours with --module=my_tasks
  --for=configs/roberta.py          what the recipe needs of the vocabulary is checked at the start

Documents in plain text are separated by blank lines, or by <doc> and </doc> lines. A run that was
killed goes on where it was when the same command is given again; a store that is not finished is
never opened.

A text of its own for evaluation, instead of a share of the documents:

  python -m bertjax.prepare --input=valid.txt --vocab=STORE/vocab --output=STORE/heldout --holdout=0

Many files on many machines: the same store, made by Apache Beam with the flags of its runners.
What a broken pipeline has made lies in STORE.shards, and is not made again:

  python -m bertjax.prepare --input='gs://B/text/*.gz' --vocab=gs://B/vocab.txt --output=gs://B/STORE
    --runner=DataflowRunner --project=P --region=R --temp_location=gs://B/T --setup_file=./setup.py

Is a store still what was written? Reads every file of it and of its plans, and names the damaged:

  python -m bertjax.prepare --verify --output=STORE
"""

import concurrent.futures
import contextlib
import dataclasses
import errno
import os
import pathlib
import sys
from typing import Any

from absl import app, flags

from bertjax import children, registry, text_flags
from bertjax.config import command_line, timeline
from bertjax.errors import UserError, amount, door, package
from bertjax.examples import unread_text
from bertjax.machine import checksums, copies, remote
from bertjax.metrics.progress import Bar
from bertjax.store import encode, room, shards, summary
from bertjax.store.builder import Kind, Partial
from bertjax.store.reader import open_store
from bertjax.store.unfinished import is_finished, owned, refuse_foreign
from bertjax.store.verify import faults, plan_faults
from bertjax.text import phrases
from bertjax.text.files import find_files
from bertjax.text.left_out import NAMED
from bertjax.vocab.vocabulary import Vocabulary, load_vocabulary

_VOCAB = flags.DEFINE_string(
  'vocab',
  None,
  'vocab.txt, vocab.json, a SentencePiece .model, tokenizer.json, codes_NAME of fastBPE, or a '
  'directory with one of them.',
)
_FOR = flags.DEFINE_string(
  'for', '', 'Config that is to train on the store: refuse a vocabulary that it cannot use.'
)
_VERIFY = flags.DEFINE_bool(
  'verify', False, 'Compare the files of a finished store with their sha256; takes --output alone.'
)
_HOLDOUT = flags.DEFINE_float(
  'holdout', 0.01, 'Share of the documents that goes to STORE/heldout.', 0.0, 0.5
)
_WORKERS = flags.DEFINE_integer('workers', 0, 'Processes; 0: one per core.', 0)
_PART_MB = flags.DEFINE_float(
  'part_mb', 64.0, 'Mebibytes of tokens in a part: what a kill costs, and what memory holds.', 0.001
)
_RUNNER = flags.DEFINE_string(
  'runner',
  '',
  'Encode file by file on this runner of Apache Beam, which takes its own flags besides: '
  'DirectRunner, DataflowRunner, FlinkRunner, SparkRunner.',
)
_LANGUAGES = flags.DEFINE_list(
  'languages', [], 'The languages of the text, in the order of their ids; by default as they come.'
)
_LEXICON = flags.DEFINE_string(
  'lexicon', '', 'Files of phrases and entities, an entry a line, whose places become units.'
)
_SEGMENTER = flags.DEFINE_string(
  'segmenter',
  '',
  'Instead of a lexicon: MODULE:FUNCTION, text to pieces or (start, end) pairs, e.g. jieba:lcut; '
  'or capitals, runs of capitalised words.',
)
_MAKING = (
  'split', 'errors', 'documents', 'module', 'field', 'columns', 'languages', 'lexicon', 'segmenter',
  'lowercase', 'skip_bad', 'holdout', 'workers', 'part_mb', 'runner', 'for',
)  # fmt: skip


def _check_flags() -> None:
  given = [name for name in ('input', 'vocab') if flags.FLAGS[name].value is not None]
  if len(given) != (0 if _VERIFY.value else 2):
    said = ', '.join(f'--{name}' for name in given) or 'neither'
    raise UserError(f'expected --input and --vocab, or --verify without both, got {said}')
  beside = [name for name in _MAKING if flags.FLAGS[name].present]
  if _VERIFY.value and beside:
    raise UserError(f'--verify reads what is there, with --output alone, got --{beside[0]}')


def _verify(output: pathlib.Path) -> None:
  """Reads a store and its plans; ends the process with status 1 where a file is damaged."""
  remedy = f'Put a copy in its place, or remove {output} and prepare it again'
  found = [f'{said}. {remedy}' for said in faults(output)]
  found += [f'{said}. The next run builds the plan again' for said in plan_faults(output)]
  print(''.join(f'{said}\n' for said in found), end='')
  if found:
    sys.exit(f'bertjax.prepare: {amount(len(found), "files")} of {output} damaged')
  print(f'{output} is what was written')


def _prepare(output: pathlib.Path, beam: Any) -> None:
  """Makes the store that the flags ask for, or finds it made already."""
  vocab = copies.local(str(_VOCAB.value), beside=True)  # once, and not in each worker
  vocabulary = load_vocabulary(vocab, text_flags.LOWERCASE.value)
  if not children.followed:  # a run has compared the vocabulary with its own recipe
    _check_use(vocabulary)
  corpus = text_flags.open_corpus()
  split = corpus.detect(text_flags.SPLIT.value)
  kind = _kind(corpus, vocabulary)._replace(split=split)
  names = 'split holdout errors documents field part_mb columns languages lexicon segmenter'.split()
  identity = dict(
    name=corpus.name,
    vocabulary=vocabulary.meta,
    source=[*corpus.fingerprint, *_units_fingerprint()],
    options={name: flags.FLAGS[name].value for name in names}
    | (dict(skip_bad=True) if text_flags.SKIP_BAD.value else {})
    | (dict(spaced=True) if encode.spaced(split, vocabulary) else {}),
  )
  with owned(output):
    if is_finished(output, identity):
      open_store(output)
      print(f'{output} is already there')
    else:
      partial = Partial(output, identity, _HOLDOUT.value, kind)
      rate = _make(corpus, vocabulary, str(vocab), split, partial, output, beam)
      summary.show(open_store(output), vocabulary, rate)


def _check_use(vocabulary: Vocabulary) -> None:
  """Refuses a vocabulary that the config of --for cannot use; of none says who cannot use it."""
  if not _FOR.value:
    lines = [f'{_VOCAB.value} has no {line}' for line in unread_text.lacks(vocabulary.special)]
    lines += ['--for=CONFIG checks the vocabulary for a recipe'] if lines else []
    print(''.join(f'{line}\n' for line in lines), end='', flush=True)
    return
  from bertjax.train import resolve  # imports the models: not on the way to --help

  spec = resolve.resolve(command_line.load(_FOR.value))
  facts = dict(store=str(_VOCAB.value), ids=vocabulary.size, pad=vocabulary.special['pad'])
  for phase in resolve.with_store(spec, spec.facts._replace(**facts)).timeline.parts:
    if phase.config.data.reader == 'labelled':
      raise UserError(f'--for={_FOR.value} trains on labelled files, which no store is made of')
    with timeline.named(phase):
      unread_text.check_vocabulary(phase.config, vocabulary.meta, f'--vocab={_VOCAB.value}')


def _make(corpus, vocabulary, vocab: str, split: str, partial: Partial, output, beam) -> float:
  """Writes the rest of a store; returns tokens a second."""
  stats, before = partial.stats, partial.tokens
  if stats.documents:
    print(f'going on after document {stats.documents}')
  names = ('lowercase', 'errors', 'lexicon', 'segmenter', 'skip_bad')
  said: dict[str, Any] = {name: flags.FLAGS[name].value for name in names}
  options = encode.Options(vocab=vocab, split=split, columns=tuple(corpus.columns), **said)
  room.require(corpus, vocabulary, options, output)
  if beam:
    from bertjax.store import on_beam

    options = options._replace(vocab=str(_VOCAB.value))  # each host has its own copy of a URL
    directory, besides = f'{text_flags.OUTPUT.value.rstrip("/")}.shards', _units_fingerprint()
    divided = shards.divide(corpus, options, vocabulary, directory, besides)
    on_beam.make(divided, beam)
    corpus = dataclasses.replace(corpus, files=None, left_out=shards.left_out(divided))
    found = shards.joined(divided, stats.documents)
  else:
    workers = _WORKERS.value or len(os.sched_getaffinity(0))
    found = encode.encode_all(corpus.batches(stats.documents), options, workers)
  # Closed here where an error ends it: its workers cannot be ended while Python exits.
  with Bar('prepare') as bar, contextlib.closing(found):
    for batch in found:
      partial.add(batch)
      if batch.whole and partial.train.buffered >= _PART_MB.value * 2**20:
        partial.cut()
      rate = (partial.tokens - before) / bar.seconds
      read = f'{amount(stats.documents, "documents")}, {stats.bytes / 1e6:,.1f} MB'
      bar.show(f'{read}, {rate:,.0f} tokens/s', corpus.done(stats.documents))
    rate = (partial.tokens - before) / bar.seconds
  stats.bad_lines = corpus.left_out.count
  stats.bad_first = list(dict.fromkeys([*corpus.left_out.named, *stats.bad_first]))[:NAMED]
  if not partial.train.documents:
    raise UserError(
      f'{text_flags.INPUT.value} has no text: {amount(stats.documents, "documents")}, all empty'
      + ''.join(f'\nleft out: {name}' for name in stats.bad_first)
    )
  partial.finish(vocabulary)
  if beam:
    remote.remove(directory)
  return rate


def _kind(corpus, vocabulary: Vocabulary) -> Kind:
  """Returns the parts of the store besides tokens; meets mistakes before anything is written."""
  finder = _LEXICON.value and f'--lexicon={_LEXICON.value}'
  finder = finder or (_SEGMENTER.value and f'--segmenter={_SEGMENTER.value}')
  if phrases.finder(_LEXICON.value, _SEGMENTER.value):
    vocabulary.encode_spans([])
  if twice := sorted({name for name in _LANGUAGES.value if _LANGUAGES.value.count(name) > 1}):
    raise UserError(f'--languages: {twice[0]!r} is there twice: expected each name once')
  languages = _LANGUAGES.value or corpus.languages
  if (_LANGUAGES.value or vocabulary.check_language) and 'language' not in corpus.columns:
    why = f'--languages={",".join(_LANGUAGES.value)}, but the text does not say its language'
    if vocabulary.check_language:
      why = f'{vocabulary.files[0]} cuts words by the rules of their language'
    raise UserError(
      f'{why}: expected --input=LANGUAGE=FILES, --columns=language, or a Task with a feature '
      '`language`'
    )
  if check := vocabulary.check_language:
    for name in languages:
      check(name)
  if unknown := [name for name in corpus.languages if name not in languages]:
    raise UserError(
      f'--input has the language {unknown[0]!r}, which has no id: expected one of '
      f'{", ".join(languages)}. Add it to --languages, or leave its text out'
    )
  return Kind(finder, tuple(corpus.columns), tuple(languages), bool(_LANGUAGES.value))


def _units_fingerprint() -> list[dict]:
  named = {str(p.resolve()): p for p in (find_files(_LEXICON.value) if _LEXICON.value else ())}
  found = [dict(lexicon=name, sha256=checksums.of_file(p)) for name, p in named.items()]
  if code := registry.own_file(_SEGMENTER.value.partition(':')[0]):
    sha256 = checksums.of_file(pathlib.Path(code))
    found.append(dict(segmenter=_SEGMENTER.value, sha256=sha256))
  return found


def _beam(words: list[str]) -> Any:
  """Beam's options, where it is asked for: --runner, and the words that are none of our flags."""
  if not _RUNNER.value:
    return None
  if _WORKERS.value:
    raise UserError(
      '--workers are of this machine: expected the flags of the runner, --direct_num_workers of '
      'DirectRunner, --num_workers of DataflowRunner'
    )
  runner = f'--runner={_RUNNER.value}'
  on_beam = package('bertjax.store.on_beam', runner, '-r requirements-beam.txt')
  return on_beam.options_of([runner, *words])


def main(argv: list[str]) -> None:
  """Prepares a store; a user's mistake ends in one message, not a traceback."""
  _check_flags()
  beam = _beam(argv[1:])
  try:
    if _VERIFY.value:
      _verify(copies.local(text_flags.OUTPUT.value))
    else:
      refuse_foreign(text_flags.OUTPUT.value)
      with copies.output(text_flags.OUTPUT.value, 'store.json') as output:
        _prepare(output, beam)
  except concurrent.futures.BrokenExecutor as error:
    sys.exit(
      f'bertjax.prepare: a worker process died, for want of memory perhaps ({error}). The finished '
      'parts are kept: give the same command again, with fewer workers'
    )
  except OSError as error:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
      raise
    sys.exit(
      f'bertjax.prepare: the disk is full ({error}). The finished parts are kept in '
      f'{text_flags.OUTPUT.value}.partial: make room and give the same command again'
    )


def _parse(argv: list[str]) -> list[str]:
  """Reads the flags; with --runner those that are not ours are left for Beam."""
  beam = any(word.lstrip('-').startswith('runner') for word in argv)
  return command_line.parse_flags(argv, 'bertjax.prepare', known_only=beam)


flags.adopt_module_key_flags(text_flags)

if __name__ == '__main__':
  with door('bertjax.prepare'):
    app.run(main, flags_parser=_parse)
