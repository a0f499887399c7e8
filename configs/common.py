"""Every key that the framework reads, with its default, and the parsing of `configs/FILE.py:SIZE`.

A system's config starts from `base()` and says only what is its own, each value with its source
(bertjax/cited.py). Values that follow from others are references, so that
`--config.total_steps=1000` moves the warm-up and the phases with it. One that repeats another key
is a `config.get_oneway_ref`: set by itself it leaves that key, and what follows from it, as it was.
"""

from collections.abc import Iterable

from ml_collections import ConfigDict
from ml_collections.config_dict import FieldReference, placeholder

from bertjax.cited import DEFAULT, THE_RUN, Cited, Recipe, attribute, cited
from bertjax.errors import UserError, nearest
from bertjax.examples import recipes

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

# What BERT, ALBERT, ELECTRA and LAMB leave out of weight decay: norms and biases.
DECAY_WEIGHTS_ONLY = ((r'.*norm/(scale|bias)', 0.0), (r'.*bias', 0.0), (r'.*', 1.0))
DECAY_ALL = ((r'.*', 1.0),)

NAMES = 'ours: names'
EVERY = 'ours: how often to look and to save'


def parse_size(arg: str | None, sizes: Iterable[str], default: str) -> str:
  """The size named after the colon of `--config=FILE.py:SIZE`.

  Raises:
    UserError: an unknown size; the nearest one is named.
  """
  sizes = list(sizes)
  name = arg or default
  if name not in sizes:
    said = f'unknown size {name!r}, expected one of {", ".join(sizes)}'
    raise UserError(f'{said}{nearest(name, sizes)}')
  return name


def base() -> Recipe:
  """The defaults shared by every config; their source is 'default'."""
  c = Recipe()
  c.name = ''
  c.preset = ''  # tpu, gpu, cpu: dtype and compiler flags (bertjax/config/presets.py)
  c.seed = 0

  c.total_steps = 1000
  c.epochs = 0.0  # of labelled examples, which then set total_steps
  c.minutes = 0.0  # of training where the run begins, which then set total_steps
  c.batch_size = 256  # sequences per step, over all devices and hosts
  c.length = 128  # tokens per sequence, special tokens included
  c.microbatches = 1  # gradient accumulation
  c.reduce_dtype = 'float32'  # of the gradients that devices exchange

  c.log_steps = 100
  c.eval_steps = 1000
  c.checkpoint_steps = 1000
  c.keep_checkpoints = 3  # the newest ones, besides the best
  c.save_carry = True  # memory of recurrent systems; without it a resume is not bitwise
  # patience: of early stopping, in evaluations; 0: none.
  c.best = ConfigDict(dict(metric='eval/mlm_masked', mode='min', patience=0))

  # -1: the devices that are left
  c.mesh = ConfigDict(dict(data=-1, fsdp=1, tensor=1, sequence=1, slices=1))
  c.sharding_rules = SHARDING_RULES

  c.data = data()
  c.evals = evals(c)

  c.phases = ConfigDict()  # name -> overrides, in the order of the names: config/timeline.py
  # 'runs/bert', 'hf:DIR', or ((checkpoint, from path, to path, layers), ..): see
  # bertjax/sources/init_from.py
  c.init_from = FieldReference((), field_type=object)
  c.fresh_layers = (
    0  # the last so many, and the pooler, are made anew: bertjax/train/fresh_layers.py
  )
  c.remap_vocab = False  # of another vocabulary, take the pieces that both have
  # Where either of the two numbers is not 0, steps are compiled with norms for each layer.
  c.skip_nonfinite = 0  # steps that are not finite and may be skipped; 0: the first stops the run
  c.spike = 0.0  # 6.0: steps so many standard deviations above the mean are recorded
  c.skip_steps = ()  # (123, (456, 460)): batches that are left out
  c.profile = ConfigDict(dict(start=10, steps=0))  # steps > 0: a trace in workdir/profile
  c.trackers = ()  # 'wandb', 'mlflow': where metrics go besides metrics.jsonl and TensorBoard
  return attribute(c, DEFAULT)


def the_run(c: Recipe) -> Cited:
  """The total_steps of a schedule that goes on to the end of the run."""
  return cited(THE_RUN, total_steps=c.get_oneway_ref('total_steps'))


def evals(c: ConfigDict) -> ConfigDict:
  """Returns the evaluations: set name -> type, a module of bertjax/evals, every, and its options.

  every: steps between two evaluations; 0: at the end of the run alone. The scores of `held_out` are
  eval/<score>, those of others eval/<set>/<score>.
  """
  e = ConfigDict()
  e.held_out = ConfigDict(
    dict(
      type='loss',
      examples=1024,  # held-out rows per evaluation; 0: all of them
      batch_size=64,
      seed=17,  # of the masks, the same at every evaluation
      length=0,  # tokens per row; 0: config.length
      data=ConfigDict(),  # overrides of config.data: other masks than in training
      model=ConfigDict(),  # overrides of config.model: a longer memory than in training
    )
  )
  each = lambda: c.get_oneway_ref('eval_steps')  # one for each, so that none moves another
  e.held_out.every = each()
  # Rows scored token by token; 0: none.
  e.pseudo_perplexity = dict(type='pseudo_perplexity', every=0, rows=8, rows_of='held_out')
  # A linear classifier on the frozen model, fitted to `train` and judged on `dev`; no file: none.
  e.linear_probe = dict(
    type='linear_probe', every=each(), train='', dev='', text=('sentence',), label='label',
    classes=('0', '1'), header=(), examples=2000, batch_size=64, language='',
  )  # fmt: skip
  # Sentences with [MASK], to be completed.
  e.fill_mask = dict(type='fill_mask', every=0, sentences=(), language='')
  return e


def laptop(c: ConfigDict) -> None:
  """Gives a recipe at size `tiny` what lets it learn on one core in minutes (docs/learning.md).

  Initial weights of 0.02 leave so narrow a model at the unigram for long, and batches this small
  take no harm from a peak this high. What the system is, its data, masks and losses, stays.
  """
  ours = 'ours: what a laptop learns with (common.laptop)'
  c.update(cited(ours, total_steps=2500, batch_size=32, length=64))
  c.update(cited(ours, log_steps=100, eval_steps=500, checkpoint_steps=500))
  # 1 / sqrt(width)
  c.model.update(cited(ours, init_std=0.08, dropout=0.0, attention_dropout=0.0))
  c.optimizer.update(cited(ours, b2=0.98))
  if 'bias_correction' in c.optimizer:
    c.optimizer.update(cited(ours, bias_correction=True))
  warmup = c.get_ref('total_steps') * 2 // 25
  c.optimizer.schedule.update(cited(ours, peak=2e-3, warmup_steps=warmup))
  c.evals.held_out.update(cited(ours, examples=512))


def data() -> Recipe:
  """Returns the source of the text and the recipe that makes batches of it."""
  d = Recipe()
  # A finished store, or what `bertjax.prepare` and `bertjax.vocab` take to make one in the workdir.
  d.store = ''
  d.input = ''
  d.mixture = ''  # a seqio Task or Mixture, by name
  d.module = ''  # imported first; registers it
  d.vocab = ''
  d.train_vocab = ConfigDict(dict(type='', size=0))  # trained where no vocab is given
  d.lowercase = placeholder(bool)  # None: as the vocabulary says
  d.split = 'auto'  # lines, sentences, verbatim: see `prepare --help`
  d.errors = 'strict'  # or 'replace', of bytes that are not UTF-8
  d.field = 'text'  # of JSON lines and tables, which holds the text; a.b.c where it lies in objects
  d.skip_bad = False  # leave out lines and records that are wrong, and count them
  d.documents = 0
  d.columns = ()  # fields of JSON lines to keep for each sentence: language, role
  d.languages = ()  # in the order of their ids; (): as the text has them
  d.lexicon = ''  # files of phrases and entities, or
  d.segmenter = ''  # MODULE:FUNCTION that finds them, or capitals: the units of masks
  d.holdout = 0.01  # share of the documents kept for evaluation, or
  d.heldout = ''  # text for it, as d.input
  d.workers = 0  # processes of `prepare`; 0: one per core

  d.reader = 'store'  # 'seqio' streams examples without a store; 'labelled': those of d.train
  d.train = d.dev = ''  # .tsv, .csv or .jsonl; tfds:NAME:SPLIT
  d.examples = 0  # of train; 0: all
  d.length_block = 50  # batches whose rows are sorted by length together; 1: rows in any batch
  d.task = ConfigDict()  # what their columns mean (bertjax/examples/labelled)
  d.threads = 2  # that build batches ahead of the step

  # Which tokens make up an example (examples/plans), and what is hidden (examples/noise).
  d.plan = recipes.BERT_PLAN
  d.mask = recipes.BERT_MASK
  d.pack = 1  # examples per row at most; more put several short ones in a row, isolated

  # Languages are read with p ~ (share of the rows)^alpha; None: as often as they are in the store.
  d.language_alpha = placeholder(float)
  d.language_block = 1  # rows in a row that share a language
  return d


def adamw() -> Recipe:
  """AdamW with every field that it reads (bertjax/optim/directions/adamw.py); BERT's values."""
  return Recipe(
    cited(
      'bert/optimization.py:create_optimizer',
      name='adamw',
      b1=0.9,
      b2=0.999,
      eps=1e-6,
      weight_decay=0.01,
      decay=DECAY_WEIGHTS_ONLY,
      clip=1.0,
    )
    | cited('bert/optimization.py:AdamWeightDecayOptimizer', bias_correction=False)
    | cited('ours: options of other systems, off', freeze=(), lr_scale=((r'.*', 1.0),))
  )


def stable_adamw() -> Recipe:
  """StableAdamW (bertjax/optim/directions/stable_adamw.py); ModernBERT's values, and no clip."""
  o = adamw()
  del o.bias_correction
  # No clip: the update of every tensor is bounded by itself.
  o.update(
    cited(
      'ModernBERT/yamls/modernbert/modernbert-base-pretrain.yaml:optimizer',
      name='stable_adamw',
      b1=0.9,
      b2=0.98,
      eps=1e-6,
      decay=DECAY_WEIGHTS_ONLY,
      clip=0.0,
    )
  )
  return o


def muon() -> Recipe:
  """Muon for the matrices of the layers, and AdamW, whose learning rate and decay serve both."""
  o = adamw()
  del o.bias_correction
  o.update(
    cited(
      'ours: an option of every recipe',
      name='muon',
      matrices=((r'(.*/)?(layers|shared)/.*kernel', 1.0), (r'.*', 0.0)),
      momentum=0.95,
      nesterov=True,
      newton_schulz_steps=5,
      update_rms=0.2,
    )
  )
  return o
