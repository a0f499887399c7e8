"""The common ground of recipes: the defaults of a run, optimizers, and `configs/FILE.py:SIZE`.

A system's config starts from `base()` and sets what is its own, each value with its source
(bertjax/cited.py). Values that follow from others are references, so that
`--config.total_steps=1000` moves the warm-up and the phases with it. One that repeats another key
is a `config.get_oneway_ref`: set by itself it leaves that key, and what follows from it, as it was.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import FieldReference, placeholder

from bertjax import options
from bertjax.cited import DEFAULT, THE_RUN, Cited, Recipe, cited, reattribute
from bertjax.config.keys import FIXED
from bertjax.errors import UserError, nearest

# What BERT, ALBERT, ELECTRA and LAMB leave out of weight decay: norms and biases.
DECAY_WEIGHTS_ONLY = ((r'.*norm/(scale|bias)', 0.0), (r'.*bias', 0.0), (r'.*', 1.0))
DECAY_ALL = ((r'.*', 1.0),)

NAMES = 'ours: names'
EVERY = 'ours: how often to look and to save'
AS_THE_RUN = object()  # the default of `evals.NAME.every`, which then follows config.eval_steps


def parse_size(arg: str | None, sizes: Iterable[str], default: str) -> str:
  """Returns the size named after the colon of `--config=FILE.py:SIZE`. Raises UserError: an unknown
  size; the nearest one is named."""
  sizes = list(sizes)
  name = arg or default
  if name not in sizes:
    said = f'unknown size {name!r}, expected one of {", ".join(sizes)}'
    raise UserError(f'{said}{nearest(name, sizes)}')
  return name


def base() -> Recipe:
  """Returns what every recipe begins with: the keys of a run with their defaults, and how
  pretraining is judged, by losses and at its end by pseudo-perplexity."""
  c: Any = Recipe()
  for name, fields in FIXED.items():
    section = c
    for part in filter(None, name.split('.')):
      section = section[part]
    fill(section, options.fields_of(fields), c.get_oneway_ref)
  c.evals.held_out = cited(EVERY, type='loss')
  c.evals.pseudo_perplexity = cited(EVERY, type='pseudo_perplexity')
  return c


def fill(
  given: ConfigDict, fields: Mapping[str, options.Field], follow: Callable[[str], Any]
) -> None:
  """Gives the fields that a section lacks their defaults, in place, and removes the defaults of
  fields that it does not have any more since another thing is chosen; `follow` makes a key of the
  whole config a reference to it."""
  for name in given.defaults() if isinstance(given, Recipe) else ():
    if name not in fields:
      del given[name]
  for name, field in fields.items():
    if not field.required and name not in given:
      given[name] = _held(field, follow)
      if isinstance(given, Recipe):
        reattribute(given, DEFAULT, name)


def _held(field: options.Field, follow: Callable[[str], Any]) -> Any:
  """Returns a default in the form in which a ConfigDict takes all values of the field."""
  if field.default is AS_THE_RUN:
    return follow('eval_steps')
  if isinstance(field.default, Mapping):
    return Recipe(field.default)
  kinds = options.kinds_of(field.kind)
  if len(kinds) > 1 and field.default is not None:
    return FieldReference(field.default, field_type=object)
  return placeholder(kinds[0]) if field.default is None else field.default


def the_run(c: Recipe) -> Cited:
  """Returns the total_steps of a schedule that goes on to the end of the run."""
  return cited(THE_RUN, total_steps=c.get_oneway_ref('total_steps'))


def laptop(c: Any) -> None:
  """Gives a recipe at size `tiny` what lets it learn on one core in minutes (docs/learning.md).
  Initial weights of 0.02 leave so narrow a model at the unigram for long, and batches this small
  take no harm from a peak this high. What the system is, its data, masks and losses, stays."""
  ours = 'ours: what a laptop learns with (defaults.laptop)'
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


def adamw() -> Recipe:
  """AdamW with every field that it reads (bertjax/optim/directions/adamw.py); BERT's values."""
  return Recipe(
    cited(
      'bert/optimization.py:create_optimizer',
      name='adamw',
      b2=0.999,
      eps=1e-6,
      weight_decay=0.01,
      decay=DECAY_WEIGHTS_ONLY,
      clip=1.0,
    )
    | cited('bert/optimization.py:AdamWeightDecayOptimizer', bias_correction=False)
  )


def stable_adamw() -> Recipe:
  """StableAdamW (bertjax/optim/directions/stable_adamw.py); ModernBERT's values, and no clip."""
  o: Any = adamw()
  del o.bias_correction, o.clip
  # No clip: the update of every tensor is bounded by itself.
  o.update(
    cited(
      'ModernBERT/yamls/modernbert/modernbert-base-pretrain.yaml:optimizer',
      name='stable_adamw',
      b2=0.98,
      eps=1e-6,
      decay=DECAY_WEIGHTS_ONLY,
    )
  )
  return o


def muon() -> Recipe:
  """Muon for the matrices of the layers, and AdamW, whose learning rate and decay serve both."""
  o: Any = adamw()
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
