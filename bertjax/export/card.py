"""README.md of an exported model, from the run's own facts."""

import math
import re
from collections.abc import Mapping
from typing import Any

from bertjax.sources import foreign, init_from
from bertjax.sources.runs import Run

USE = """```python
from transformers import AutoTokenizer, {name}

tokenizer = AutoTokenizer.from_pretrained('DIR')
model = {name}.from_pretrained('DIR')
```
"""
ONNX = """```python
import onnxruntime
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained('DIR')
session = onnxruntime.InferenceSession('DIR/model.onnx')
texts = dict(tokenizer(['A text.', 'And a longer one.'], padding=True, return_tensors='np'))
outputs = session.run(None, {{each.name: texts[each.name] for each in session.get_inputs()}})
```
"""
ORIGINAL = '    python -m bertjax.embed --workdir={original}:DIR --input=FILE --output=OUT.npy\n'


# End of a class's name -> the task of transformers' pipelines.
_TASKS = dict(
  ForMaskedLM='fill-mask', WithLMHeadModel='fill-mask',
  ForSequenceClassification='text-classification',
  ForTokenClassification='token-classification', ForQuestionAnswering='question-answering',
  ForMultipleChoice='multiple-choice', LMHeadModel='text-generation', Model='feature-extraction',
)  # fmt: skip


def card(
  run: Run, model: Any, said: Mapping[str, Any], original: str = '', onnx: bool = False
) -> str:
  """Returns the text of the model card of a run whose exported part has this `config.model` and
  receipt; `original` is the format that it has in place of one of transformers, `onnx` whether it
  is model.onnx of such a one."""
  config, name, tensors = run.config, said['model_class'], said['tensors']
  parameters = sum(math.prod(tensor['shape']) for tensor in tensors)
  rows = [
    ('class', f'`{name}`'),
    ('parameters', f'{parameters:,} in {len(tensors)} tensors'),
    ('layers, width', f'{model.layers}, {model.width}'),
    *([('heads', f'{model.heads}')] if 'heads' in model else []),
    ('vocabulary', f'{model.vocab_size:,} ids'),
    ('objective', f'`{config.objective.name}`'),
  ]
  meta, data = run.meta, run.config.data
  read = run.step == 0 and 'source' in meta  # it was trained elsewhere
  if read:
    rows.append(('converted from', f'`{_name(meta["source"])}`'))
  else:
    rows += [('steps', f'{run.step:,}'), ('batch', f'{run.config.batch_size} rows')]
    if ledger := meta.get('ledger'):
      rows.append(('tokens seen', f'{ledger["total"]["real"]:,.0f}'))
    if text := data.mixture or data.input or data.store:
      rows.append(('data', f'`{_name(text)}`'))
  scores = ''.join(f'| {name} | {value:.4f} |\n' for name, value in sorted(run.scores.items()))
  facts = ''.join(f'| {name} | {value} |\n' for name, value in rows)
  made = 'Read by bertjax, and written for' if read else 'Pretrained with bertjax and converted to'
  held_out = f'\n## Held-out scores\n\n| score | value |\n|---|---|\n{scores}' if scores else ''
  library, target, use = '', f'the names of {name}', ORIGINAL.format(original=original)
  if not original:
    library, target, use = 'library_name: transformers\n', 'PyTorch `transformers`', USE
    if onnx:
      library, target, use = '', f'`model.onnx`, a graph of {name}', ONNX
    library += _task(name)
  if base := _base(meta['source'] if read else init_from.whole(config.init_from)):
    library += f'base_model: {base}\n'
  if data.languages:
    library += f'language: [{", ".join(map(repr, data.languages))}]\n'
  tag = '\n- onnx' if onnx else ''
  return f"""---
{library}tags:
- bertjax{tag}
---

# {config.name or model.family}

{made} {target}. `parity.json` beside this file is
the receipt of the conversion: every tensor with its sha256, and how far the outputs of both sides
are apart. The licence is for you to choose: add `license:` to the head of this file.

| fact | value |
|---|---|
{facts}{held_out}
Versions: {', '.join(f'{name} {version}' for name, version in said['versions'].items())}.

{use.format(name=name)}"""


def _task(name: str) -> str:
  found = [task for end, task in _TASKS.items() if name.endswith(end)]
  return f'pipeline_tag: {found[0]}\n' if found else ''


def _base(source: str) -> str:
  """Returns the hub's name of a model, which its cache tells; '' of any other folder."""
  if not foreign.is_source(source):
    return ''
  cached = re.search(r'models--([^/]+)/snapshots/', source)
  return cached[1].replace('--', '/') if cached else ''


def _name(text: str) -> str:
  """Returns a source, or patterns of files, without the folders of this machine."""

  def short(path: str) -> str:
    named = path.startswith(('tfds:', 'seqio:')) or '://' in path
    return path if named else re.sub(r'^(\w+:)?.*/', r'\1', path.rstrip('/'))

  # Of each language its patterns, of a pair of languages two files.
  return re.sub(r'[^,=+]+', lambda path: short(path[0]), text)
