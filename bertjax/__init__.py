"""bertjax: pretraining of the BERT family, and `bertjax.Model`, which uses what was trained."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from bertjax.model import Model as Model

__all__ = ['Model']


def __getattr__(name: str) -> Any:
  """`bertjax.Model`, imported when it is asked for: jax and the models take seconds."""
  if name != 'Model':
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  from bertjax.model import Model

  return Model
