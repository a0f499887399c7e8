"""parity.json: what a conversion did, and the proof that both sides say the same."""

import importlib.metadata
import json
import pathlib
import platform
import resource
import time
from typing import Any

from rich.table import Table

from bertjax.errors import amount, writing
from bertjax.export import parity
from bertjax.formats import tokenizer
from bertjax.machine import checksums
from bertjax.vocab.vocabulary import Vocabulary

NAME = 'parity.json'
LIBRARIES = """
  bertjax jax numpy onnx onnxruntime onnxscript orbax-checkpoint safetensors tokenizers torch
  transformers
""".split()


def versions() -> dict[str, str]:
  """Returns the versions of what took part."""
  found = dict(python=platform.python_version())
  for name in LIBRARIES:
    try:
      found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      continue
  return found


def files(directory: pathlib.Path) -> dict[str, str]:
  """Name -> sha256 of the files of a directory, those below it included."""
  found = sorted(p for p in directory.rglob('*') if p.is_file() and p.name != NAME)
  return {path.relative_to(directory).as_posix(): checksums.of_file(path) for path in found}


def compared(
  directory: pathlib.Path, model: Any, inputs: Any, mine: parity.Outputs, state: Any = None
) -> dict[str, Any]:
  """Returns the parity block, our outputs beside those of the class that a directory holds: missing
  and unexpected keys and the differences, see `parity.theirs`; only `skipped` where torch or
  transformers is not installed."""
  try:
    other, keys = parity.theirs(directory, model, inputs, state)
  except ImportError as error:
    return dict(skipped=f'{error.name} is not installed: outputs were not compared')
  return dict(
    missing=keys['missing_keys'], unexpected=keys['unexpected_keys'],
    differences=parity.differences(mine, other),
  )  # fmt: skip


def compared_ids(
  directory: pathlib.Path,
  vocabulary: Vocabulary | None,
  model: Any,
  told: tokenizer.layouts.Between | None = None,
) -> dict[str, Any]:
  """Returns the tokenizer block: our ids beside those of the tokenizer that a directory holds."""
  if vocabulary is None:
    return dict(skipped='there is no tokenizer: ids were not compared')
  if vocabulary.type == 'openai_bpe':
    said = 'cuts words as BERT does and GPT (here, too) as spaCy: their ids differ on many texts'
    return dict(skipped=f"transformers' OpenAIGPTTokenizer {said}")
  family = tokenizer.layouts.of_model(model)
  try:
    return dict(differences=tokenizer.differences(vocabulary, directory, family, told))
  except ImportError as error:
    return dict(skipped=f'{error.name} is not installed: ids were not compared')


def faults(receipt: dict[str, Any]) -> list[str]:
  """Returns the faults that a receipt reports, a sentence each; [] if there are none."""
  found = []
  outputs = receipt['outputs']
  for kind in ('missing', 'unexpected'):
    if outputs.get(kind):
      found.append(f'{len(outputs[kind])} {kind} keys: {", ".join(outputs[kind][:10])}')
  for each in outputs.get('differences', ()):
    if not each['ok']:
      found.append(
        f'{each["of"]} is off by {each["absolute"]:.2e} ({each["relative"]:.2e} of its largest '
        f'value), allowed {each["tolerance"]:.0e}'
      )
  found += [f'tokenizer: {line}' for line in receipt['tokenizer'].get('differences', ())]
  for name, part in receipt.get('parts', {}).items():
    found += [f'{name}: {fault}' for fault in faults(part)]
  return found


def write(
  directory: pathlib.Path, receipt: dict[str, Any], started: float, bytes_of_model: int
) -> None:
  """Writes parity.json, and adds to the receipt the seconds since `started` and the peak of this
  process's memory beside the size of the model."""
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
  receipt['resources'] = dict(
    seconds=round(time.perf_counter() - started, 2),
    peak_bytes=peak, model_bytes=bytes_of_model, peak_by_model=round(peak / bytes_of_model, 2),
  )  # fmt: skip
  path = directory / NAME
  with writing('the receipt', path):
    path.write_text(json.dumps(receipt, indent=1, ensure_ascii=False) + '\n', encoding='utf-8')


def table(receipt: dict[str, Any]) -> Table:
  """Returns the receipt for people: the worst hidden state and every head."""
  shown = Table('what', 'absolute', 'relative', 'allowed', title=receipt['title'])
  differences = receipt['outputs'].get('differences', ())
  layers = [each for each in differences if each['of'].startswith('hidden state')]
  worst = sorted(layers, key=lambda each: each['relative'])[-1:]
  for each in [*worst, *(each for each in differences if each not in layers)]:
    shown.add_row(
      each['of'], f'{each["absolute"]:.1e}', f'{each["relative"]:.1e}', f'{each["tolerance"]:.0e}'
    )
  for block in ('outputs', 'tokenizer'):
    if 'skipped' in receipt[block]:
      shown.add_row(receipt[block]['skipped'])
  if 'differences' in receipt['tokenizer']:
    other = amount(len(receipt['tokenizer']['differences']), 'texts')
    shown.add_row(f'tokenizer: {other} with other ids')
  return shown
