"""The keys of a config that belong to no thing chosen by name, a class for each section."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from bertjax.field_types import NONE, Bounds, Count, Natural, NonNegative, Positive, Seed

Section = Mapping[str, Any]  # has a schema of its own
Steps = Annotated[int, Bounds(1, 2**31 - 1)]  # which the device counts in int32
Threads = Annotated[int, Bounds(0, 1024)]
MeshSize = Annotated[int, Bounds(-1)]
# Logical parameter and activation axes -> mesh axes. Activations keep their width whole.
SHARDING_RULES = (
  ('batch', ('data', 'fsdp')),
  ('length', 'sequence'),
  ('embed_act', None),
  ('embed', 'fsdp'),
  ('embed_out', None),
  ('heads', 'tensor'),
  ('heads_act', ('tensor', 'sequence')),
  ('head', None),
  ('ffn', 'tensor'),
  ('vocab', 'tensor'),
  ('position', None),
  ('type', None),
  ('label', None),
  ('norm', None),
  ('layers', None),
)
LEAST_PIECES = 300  # of a vocabulary that is trained: 256 bytes and what is special fit


class Run(NamedTuple):
  """The keys of a config.

  Attributes:
    name: of the run, for people.
    preset: dtype and compiler flags of a kind of device; '': none.
    seed: of the initial weights, the data and the dropout.
    total_steps: optimizer steps of the run.
    epochs: passes over labelled examples; sets total_steps unless the command line does; 0: unused.
    minutes: training time; a new run times some steps on its devices and sets total_steps to fit,
      unless the command line does; 0: unused.
    batch_size: rows per step, over all devices and hosts.
    length: tokens per row, special tokens included.
    microbatches: parts of a batch whose gradients are summed.
    reduce_dtype: what the gradients of devices along mesh.data are added up in, once in a step.
      bfloat16 sends half as many bytes and keeps 8 bits of each sum. Those along mesh.fsdp are
      added up where they are computed, in the dtype of the model.
    log_steps, eval_steps, checkpoint_steps: steps between two of each.
    keep_checkpoints: the newest ones that are kept, besides the best.
    save_carry: whether memory of recurrent systems is in the checkpoints; without it a resume is
      not bitwise.
    sharding_rules: (logical axis, mesh axes) pairs.
    init_from: a model to begin with, a run or hf:DIR, tf1:PATH, fairseq:PATH; or a tuple of
      (checkpoint, from path, to path, layers) of parameters.
    remap_vocab: whether init_from may be of another vocabulary, whose shared pieces are taken.
    best: which checkpoint is the best.
    mesh: how the devices are arranged.
    data: where the text comes from and how batches are made of it.
    evals: set name -> what judges the model.
    phases: name -> overrides of these keys, and share, turns, summed or drawn.
    profile: when a trace is taken.
    trackers: services that get the metrics too, modules of bertjax/metrics/trackers or one's own.
    skip_nonfinite: how many steps may be skipped because their loss, gradients or updates are not
      finite; 0: the first one stops the run.
    skip_steps: steps, or (first, last) of them, whose batches are left out.
    spike: a loss or gradient norm so many standard deviations above its mean is recorded; 0: none.
    model, objective, optimizer: what is trained, on what, and how.
    temperature: T of phases that are drawn: one of n examples with a probability ~ n^(1/T).
  """

  model: Section
  objective: Section
  optimizer: Section
  name: str = ''
  preset: Literal['', 'tpu', 'gpu', 'cpu'] = ''
  seed: Seed = 0
  total_steps: Steps = 1000
  epochs: NonNegative = 0.0
  minutes: NonNegative = 0.0
  batch_size: Count = 256
  length: Count = 128
  microbatches: Count = 1
  reduce_dtype: Literal['float32', 'bfloat16'] = 'float32'
  log_steps: Count = 100
  eval_steps: Count = 1000
  checkpoint_steps: Count = 1000
  keep_checkpoints: Count = 3
  save_carry: bool = True
  sharding_rules: tuple[tuple[str, str | None | tuple[str, ...]], ...] = SHARDING_RULES
  init_from: str | tuple[str] | tuple[tuple[str, str, str, tuple[int, ...]], ...] = ()
  remap_vocab: bool = False
  best: Section = NONE
  mesh: Section = NONE
  data: Section = NONE
  evals: Section = NONE
  phases: Section = NONE
  profile: Section = NONE
  trackers: tuple[str, ...] = ()
  skip_nonfinite: Natural = 0
  skip_steps: tuple[Count | tuple[Count, Count], ...] = ()
  spike: NonNegative = 0.0
  temperature: Positive = 1.0


class Best(NamedTuple):
  """`config.best`.

  Attributes:
    metric: name of a score; the checkpoint with the best one is kept as well.
    mode: whether the least or the largest is the best.
    patience: the run ends when so many evaluations in a row were not better; 0: it does not.
    mean: names of the scores averaged into eval/mean, in runs with several tasks; (): none.
  """

  metric: str = 'eval/mlm_masked'
  mode: Literal['min', 'max'] = 'min'
  patience: Natural = 0
  mean: tuple[str, ...] = ()


class Teacher(NamedTuple):
  """`config.objective.teacher`.

  Attributes:
    source: a run, one of its checkpoints, or hf:DIR, tf1:PATH, fairseq:PATH.
    model: its `config.model`; the run fills it in.
    sha256: of its parameters; the run fills it in.
  """

  source: str = ''
  model: Section = NONE
  sha256: str = ''


class MeshSizes(NamedTuple):
  """`config.mesh`: devices along each axis.

  Attributes:
    data: rows are divided; -1: the devices that are left.
    fsdp: rows and parameters are divided.
    tensor: heads, feed-forward and vocabulary are divided.
    sequence: the columns of the rows are divided; attention divides heads there instead.
    slices: groups of devices with a slower network between them; they divide data.
  """

  data: MeshSize = -1
  fsdp: MeshSize = 1
  tensor: MeshSize = 1
  sequence: MeshSize = 1
  slices: Count = 1


class Profile(NamedTuple):
  """`config.profile`.

  Attributes:
    start: first step of the trace.
    steps: of the trace, in workdir/profile; 0: none.
  """

  start: Count = 10
  steps: Natural = 0


class TrainVocab(NamedTuple):
  """`config.data.train_vocab`: trained where no vocabulary is given.

  Attributes:
    type: as of `bertjax.vocab --type`; '': none.
    size: its pieces, special ones included; 0: none is trained.
  """

  type: Literal[
    '', 'wordpiece', 'bpe', 'unigram', 't5', 'words', 'marked_words', 'characters', 'bytes'
  ] = ''  # fmt: skip
  size: Literal[0] | Annotated[int, Bounds(LEAST_PIECES)] = 0


class Data(NamedTuple):
  """`config.data`.

  Attributes:
    store: a finished store; '': made in the workdir from input or mixture.
    input: text files, as in `bertjax.prepare --input`.
    mixture: the name of a seqio Task or Mixture.
    module: imported first; registers Tasks.
    vocab: file or directory of a vocabulary.
    train_vocab: the vocabulary to train.
    lowercase: None: as the vocabulary says.
    split: what a line is, as of `bertjax.prepare --split`.
    errors: what becomes of bytes that are not UTF-8.
    field: of JSON lines, tables and TFDS, which holds the text.
    skip_bad: whether bad records are left out and counted.
    documents: to take; 0: all.
    columns: fields of JSON lines to keep for each sentence.
    languages: in the order of their ids; (): as the text has them.
    language: of labelled examples, by name or number, where the model has a table of languages.
    lexicon: files of phrases and entities.
    segmenter: what finds them: the units of masks.
    holdout: share of the documents kept for evaluation.
    heldout: text for it, as input.
    workers: processes of `prepare`; 0: one per core.
    reader: where rows come from: store, seqio (a stream), or labelled (examples in memory).
    train, dev: files of labelled examples, in the form of their task: tables, CoNLL, SQuAD.
    examples: of train, from the first one on; 0: all.
    length_block: batches of them whose rows are put in order of length together, so that they have
      little padding, before the batches are shuffled; 1: rows lie in any batch.
    task: what the columns of these files mean.
    threads: that build batches ahead of the step.
    plan: which tokens make up an example.
    mask: what is hidden and predicted.
    pack: examples per row at most.
    language_alpha: languages are read with p ~ (share of the rows)^alpha; None: as they come.
    language_block: consecutive rows of one language, with language_alpha.
  """

  store: str = ''
  input: str = ''
  mixture: str = ''
  module: str = ''
  vocab: str = ''
  train_vocab: Section = NONE
  lowercase: bool | None = None
  split: Literal['auto', 'lines', 'sentences', 'verbatim'] = 'auto'
  errors: Literal['strict', 'replace'] = 'strict'
  field: str = 'text'
  skip_bad: bool = False
  documents: Natural = 0
  columns: tuple[Literal['language', 'role'], ...] = ()
  languages: tuple[str, ...] = ()
  lexicon: str = ''
  segmenter: str = ''
  holdout: Annotated[float, Bounds(0, 0.5)] = 0.01
  heldout: str = ''
  workers: Natural = 0
  reader: str = 'store'
  train: str = ''
  dev: str = ''
  examples: Natural = 0
  length_block: Count = 50
  task: Section = NONE
  threads: Threads = 2
  plan: Section = NONE
  mask: Section = NONE
  pack: Count = 1
  language_alpha: NonNegative | None = None
  language_block: Count = 1
  language: str = ''


# Sections that every config has -> their keys.
FIXED: dict[str, type] = {
  '': Run,
  'best': Best,
  'mesh': MeshSizes,
  'profile': Profile,
  'data': Data,
  'data.train_vocab': TrainVocab,
}
