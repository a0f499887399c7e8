"""Training systems: one file each, `config.objective.name`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bertjax import models, registry
from bertjax.errors import UserError
from bertjax.kernels.dropout import Noise, noise_from_key
from bertjax.models.layers.contracts import LabelModel, Model
from bertjax.types import Array, Batch, Context, Objective, Out, Term

MODELS, KEY = 'bertjax.models', 'config.model.name'
Labels = tuple[tuple[str, int], ...]  # name and classes of each


def model_of(given: Any, objective: str, kind: type[Model]) -> Any:
  """Returns the model of a run, `config.model`, which must be of the kind that its objective, named
  for messages, trains: a contract of `models/layers/contracts.py`, or the one class that it is for.
  Raises UserError if there is no such model, its fields do not work, or it is of another kind."""
  if not _defines(given.name, kind):
    fitting = [repr(other) for other in registry.names_in(MODELS) if _defines(other, kind)]
    raise UserError(
      f'config.objective.name={objective!r} needs {KEY}={" or ".join(fitting)}, got '
      f'{given.name!r}: begin with a config file that has both'
    )
  return models.build(given)


def labels_of(model: Any, kind: str = 'text') -> Labels:
  """Returns name and classes of the labels of texts of a `config.model`, or of its tokens."""
  return tuple((head.name, head.classes) for head in models.heads_of(model) if head.kind == kind)


def has_words(model: Any) -> bool:
  """Returns whether a `config.model` has a head for the vocabulary."""
  return any(head.kind == 'word' for head in models.heads_of(model))


def require_words(model: Any) -> None:
  """Refuses a `config.model` without a head for the vocabulary."""
  if not has_words(model):
    raise UserError(
      'language modelling scores words: expected config.model.words=True, got False; the head that '
      'an encoder comes without is made anew'
    )


def check_heads(
  config: Any, text: Labels = (), token: Labels = (), words: bool = False, remedy: str = ''
) -> None:
  """Refuses a `config.model` with heads that the objective does not learn, or without those that it
  does.

  Args:
    config: of the run.
    text, token: the labels of texts and of tokens that it learns; 0 classes: any number.
    words: True if it also scores the vocabulary.
    remedy: the end of the message about labels, with its comma.
  """
  name = config.objective.name
  of_texts, of_tokens = (labels_of(config.model, kind) for kind in ('text', 'token'))
  if not (_are(of_texts, text) and _are(of_tokens, token)):
    raise UserError(
      f'the objective {name!r} learns other labels: expected config.model.labels={text!r} and '
      f'config.model.token_labels={token!r}, got {of_texts!r} and {of_tokens!r}{remedy}'
    )
  if not words and 'words' in config.model and config.model.words:
    raise UserError(
      f'the objective {name!r} has no words to score: expected config.model.words=False, got True'
    )


def _are(labels: Labels, wanted: Labels) -> bool:
  """Returns whether labels have the wanted names and classes; 0 classes: any number."""
  if [name for name, _ in labels] != [name for name, _ in wanted]:
    return False
  return all(most in (0, count) for (_, count), (_, most) in zip(labels, wanted, strict=True))


def label_model(config: Any) -> Any:
  """Builds the model of an objective that is read off heads. Raises UserError: see `model_of`;
  microbatches of a model whose rows know of each other."""
  model = model_of(config.model, config.objective.name, LabelModel)
  if model.batch_statistics and config.microbatches > 1:
    raise UserError(
      f'config.model.name={config.model.name!r} normalises over the rows of a batch, which '
      f'microbatches would change: expected config.microbatches=1, got {config.microbatches}'
    )
  return model


def noise_of(batch: Batch, ctx: Context) -> Noise | None:
  """Returns the keys of a step's dropout; None in evaluation."""
  return noise_from_key(ctx.key, batch['row_B']) if ctx.train else None


def in_one_pass(
  model: Any, terms: Callable[[Any, Batch], dict[str, Term]], evals: Sequence[str]
) -> Objective:
  """Returns an objective whose loss is read off what a model without a carry returns for a batch:
  `terms` makes the loss of that and the batch. Of the model it takes init, apply and flops."""

  def loss(variables, carry, batch: Batch, ctx: Context) -> Out:
    out = model.apply(variables, batch, noise_of(batch, ctx))
    return Out(terms(out, batch) | out.get('penalties', {}), carry, out.get('updates', {}))

  def predict(variables, carry, batch: Batch) -> dict[str, Array]:
    return model.apply(variables, batch, None)

  return Objective(model.init, loss, predict, lambda batch: (), model.flops, evals=evals)


def scaled(terms: Mapping[str, Term], factor: float) -> dict[str, Term]:
  """Terms whose shares of the loss are that much of what they were."""
  return {name: term._replace(scale=factor * term.scale) for name, term in terms.items()}


def _defines(name: str, kind: type[Model]) -> bool:
  """Returns whether a module of `bertjax.models` itself defines a model of this kind."""
  module = registry.find(MODELS, name, KEY)
  classes = [x for x in vars(module).values() if isinstance(x, type) and issubclass(x, kind)]
  return any(x.__module__ == module.__name__ for x in classes)
