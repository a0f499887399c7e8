"""Shards of text encoded on Apache Beam, by any of its runners and their own flags. The only module
that imports Beam.

The pipeline has one step, which writes files: a shard is there when its file is. So it does not
matter how often a runner tries an element, and what a broken pipeline has made is kept.
"""

import concurrent.futures
import logging
import queue
import threading
from collections.abc import Iterator, Sequence

import apache_beam as beam  # pyright: ignore[reportMissingImports]
from apache_beam.options import pipeline_options  # pyright: ignore[reportMissingImports]

from bertjax.errors import UserError, amount
from bertjax.machine import remote
from bertjax.store import shards as shards_lib
from bertjax.store.shards import Shard
from bertjax.vocab.vocabulary import load_vocabulary

_KILLED = 'run_worker'  # name of DirectRunner's threads, each of which waits for a worker process


class _Encode(beam.DoFn):
  """Encodes shards; yields their names."""

  def __init__(self, vocab: str, lowercase: bool | None):
    self._vocab, self._lowercase = vocab, lowercase

  def setup(self) -> None:
    """Once a worker."""
    self._vocabulary = load_vocabulary(self._vocab, self._lowercase)

  def process(self, shard: Shard) -> Iterator[str]:  # pyright: ignore
    """Writes the shard's file."""
    shards_lib.make(shard, self._vocabulary)
    yield shard.name


def options_of(words: Sequence[str]) -> pipeline_options.PipelineOptions:
  """Returns Beam's options of a command line, --runner among them. Raises UserError for a word that
  is none of its flags; Beam would pass over it."""
  parser = pipeline_options._BeamArgumentParser(allow_abbrev=False)
  for kind in dict.fromkeys(pipeline_options.PipelineOptions.__subclasses__()):
    kind._add_argparse_args(parser)
  _, unknown = parser.parse_known_args(list(words))
  if unknown:
    raise UserError(
      f'{unknown[0]} is a flag neither of bertjax.prepare nor of Apache Beam: expected '
      '--FLAG=VALUE. See python -m bertjax.prepare --help, and the documentation of the runner'
    )
  logging.getLogger('apache_beam').setLevel(logging.WARNING)
  options = pipeline_options.PipelineOptions(list(words))
  workers = options.view_as(pipeline_options.WorkerOptions)
  workers.default_sdk_harness_log_level = workers.default_sdk_harness_log_level or 'WARNING'
  return options


def make(shards: Sequence[Shard], options: pipeline_options.PipelineOptions) -> None:
  """Encodes the shards that are not there. Raises UserError where the text of one is refused, or
  workers write where this process does not see it, BrokenExecutor where a worker process died."""
  there = remote.names(shards[0].directory)
  named = {shard.name: shard for shard in shards if shard.path.name not in there}
  missing = list(named.values())
  for shard in missing:
    if shard.refusal.name in there:
      remote.remove(shard.refusal)  # what was refused is tried again
  print(f'There are {len(shards) - len(missing)} of {amount(len(shards), "shards")}', flush=True)
  if not missing:
    return
  some = missing[0].options
  pipeline = beam.Pipeline(options=options)
  _ = (
    pipeline
    | 'shards' >> beam.Create(missing)
    | 'spread' >> beam.Reshuffle()
    | 'encode' >> beam.ParDo(_Encode(some.vocab, some.lowercase))
  )
  _run(pipeline)
  there = remote.names(shards[0].directory)
  for shard in missing:
    if shard.refusal.name in there:
      raise UserError(shard.refusal.read_bytes().decode('utf-8'))
  lost = [shard for shard in missing if shard.path.name not in there]
  if lost:
    raise UserError(
      f'{len(lost)} of {len(missing)} shards are not in {shards[0].directory}, although Beam has '
      'made them: expected --output on a disk that all workers share, or a URL'
    )


def _run(pipeline: beam.Pipeline) -> None:
  """Runs a pipeline to its end. DirectRunner waits for ever for a worker process that was killed;
  its thread that waits for the process raises, and that is heard here."""
  outcome: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

  def run() -> None:
    try:
      pipeline.run().wait_until_finish()
      outcome.put(None)
    except BaseException as error:  # to be raised by the thread that waits
      outcome.put(error)

  before = threading.excepthook

  def hear(args: threading.ExceptHookArgs) -> None:
    if args.thread is not None and args.thread.name == _KILLED:
      outcome.put(concurrent.futures.BrokenExecutor(str(args.exc_value)))
    else:
      before(args)

  threading.excepthook = hear
  try:
    threading.Thread(target=run, daemon=True, name='beam').start()
    error = outcome.get()
  finally:
    threading.excepthook = before
  if error is not None:
    logging.getLogger(__name__).debug('the pipeline broke', exc_info=error)
    raise error
