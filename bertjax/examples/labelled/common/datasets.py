"""Labelled examples of TensorFlow Datasets, by name: tfds:glue/mrpc:train, tfds:squad/v1.1:train.

  tfds:NAME:SPLIT           NAME perhaps with a config and a version (glue/mrpc, glue/mrpc:2.0.0),
                            SPLIT perhaps a part of one (validation, train[:10%]), both as in TFDS
  tfds:NAME:SPLIT:LANGUAGE  where texts stand in several languages (tfds:xnli:validation:de)

What is not on disk is downloaded by TFDS, to its data directory (TFDS_DATA_DIR).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bertjax.errors import UserError, choose, nearest

PREFIX = 'tfds:'
_NAME = re.compile(
  rf'{PREFIX}(?P<name>[\w/.-]+(:\d[\d.*]*)?)(:(?P<split>[A-Za-z_]\w*(\[[^]]*\])?))(:(?P<language>\w+))?'
)


def examples(path: str) -> Iterator[Mapping[str, Any]]:
  """Yields the examples of a split (see above): text as strings, classes by their names, lists as
  lists. Raises UserError: another form of name, one that TFDS does not know or cannot prepare, or a
  language that is not there."""
  if not (match := _NAME.fullmatch(path)):
    raise UserError(
      f'{path!r}: expected tfds:NAME:SPLIT, as in tfds:glue/mrpc:train, and :LANGUAGE behind it '
      'where there are several'
    )
  data_set, language = match['name'], match['language'] or ''
  from bertjax.examples.seqio_tasks.loaded import leave_gpus, tfds

  leave_gpus()
  try:
    builder: Any = tfds.builder(data_set)
    builder.download_and_prepare()
    found = tfds.as_numpy(builder.as_dataset(split=match['split'], shuffle_files=False))
  except (ValueError, AssertionError) as error:  # the latter of a version
    said = str(error).splitlines()[0].partition(' Here are ')[0].rstrip('. ')
    raise UserError(f'{path}: {said}{_nearest(tfds, data_set)}') from error
  except OSError as error:
    raise UserError(
      f'{path} is not on disk and TFDS could not get it ({str(error)[:200]}): run `tfds build '
      f'{data_set}` where there is a network, and set TFDS_DATA_DIR to where it is'
    ) from error
  features: Any = builder.info.features
  for each in found:
    yield {
      name: _value(tfds.features, features[name], value, path, language)
      for name, value in each.items()
    }


def _nearest(tfds: Any, name: str) -> str:
  """Returns a hint that names the most similar TFDS data set or configuration, or ''."""
  own, _, variant = name.partition(':')[0].partition('/')
  known = tfds.list_builders(with_community_datasets=False)
  if own in known:
    known = [f'{own}/{each}' for each in tfds.builder_cls(own).builder_configs] if variant else []
    own = f'{own}/{variant}'
  return '' if own in known else nearest(own, known)


def _value(kinds: Any, feature: Any, value: Any, path: str, language: str) -> Any:
  """Converts the value of a feature of a TFDS example to plain Python types."""
  if isinstance(feature, kinds.TranslationVariableLanguages):
    texts = {
      name.decode(): text.decode()
      for name, text in zip(value['language'], value['translation'], strict=True)
    }
    return _spoken(texts, path, language)
  if isinstance(feature, kinds.Translation):
    return _spoken({name: text.decode() for name, text in value.items()}, path, language)
  inner = lambda feature, value: _value(kinds, feature, value, path, language)
  if isinstance(feature, kinds.Sequence):
    if isinstance(feature.feature, kinds.FeaturesDict):  # a list for each field, of equal lengths
      rows = zip(*value.values(), strict=True)
      return [inner(feature.feature, dict(zip(value, row, strict=True))) for row in rows]
    items = value.to_list() if hasattr(value, 'to_list') else value  # ragged: lists of lists
    return [inner(feature.feature, item) for item in items]
  if isinstance(feature, kinds.FeaturesDict):
    return {name: inner(feature[name], each) for name, each in value.items()}
  if isinstance(feature, kinds.ClassLabel):
    return feature.int2str(int(value)) if value >= 0 else str(value)  # -1: nobody said
  if isinstance(value, bytes):
    return value.decode()
  return value.item() if isinstance(value, np.generic) else value


def _spoken(texts: Mapping[str, str], path: str, language: str) -> str:
  if not language:
    raise UserError(
      f'{path} has texts in {len(texts)} languages: expected one behind it, as in {path}:'
      f'{sorted(texts)[0]}'
    )
  choose(language, texts, f'languages of {path}')
  return texts[language]
