"""README.md and .eval_results of an exported model, from the run's own facts."""

import json
import math
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from bertjax import models
from bertjax.errors import amount, writing
from bertjax.sources import foreign, init_from, runs
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
{more}outputs = session.run(None, {{each.name: texts[each.name] for each in session.get_inputs()}})
```
"""
CHOICES = 'texts = {name: x[None] for name, x in texts.items()}  # the choices of one question\n'
ORIGINAL = '    python -m bertjax.embed --workdir={original}:DIR --input=FILE --output=OUT.npy\n'


# End of a class's name -> the task of transformers' pipelines.
_TASKS = dict(
  ForMaskedLM='fill-mask', WithLMHeadModel='fill-mask',
  ForSequenceClassification='text-classification',
  ForTokenClassification='token-classification', ForQuestionAnswering='question-answering',
  ForMultipleChoice='multiple-choice', LMHeadModel='text-generation',
  DoubleHeadsModel='text-generation', Model='feature-extraction',
)  # fmt: skip


# A file of `.eval_results`. A data set with several leaderboards names them in its eval.yaml, and
# no run knows which of them its files are.
RESULTS = '.eval_results'
RESULT = """- dataset:
    id: {dataset}
    task_id: default
  value: {value}
  notes: {metric} of {part}, by bertjax
"""

# Our name of a score -> the hub's.
METRICS = dict(
  accuracy='accuracy', f1='f1', mcc='matthews_correlation', exact='exact_match',
  pearson='pearsonr', spearman='spearmanr', perplexity='perplexity',
)  # fmt: skip


def write(
  folder: pathlib.Path, run: Run, model: Any, said: Mapping[str, Any], original: str = '',
  onnx: bool = False,
) -> None:  # fmt: skip
  """Writes README.md, as `card` has it, and the hub's files of results."""
  with writing('the model card', folder):
    (folder / 'README.md').write_text(card(run, model, said, original, onnx))
    for name, text in eval_results(run).items():
      (folder / RESULTS).mkdir(exist_ok=True)
      (folder / RESULTS / name).write_text(text)


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
    ('parameters', f'{parameters:,} in {amount(len(tensors), "tensors")}'),
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
    rows += [('steps', f'{run.step:,}'), ('batch', amount(run.config.batch_size, 'rows'))]
    if ledger := meta.get('ledger'):
      seen = ledger['total']['real'] + ledger['open']['real']  # since its last log line
      rows.append(('tokens seen', f'{seen:,.0f}'))
    if text := data.mixture or data.input or data.train or data.store:
      rows.append(('data', f'`{_name(text)}`'))
  scores = ''.join(f'| {name} | {value:.4f} |\n' for name, value in sorted(run.scores.items()))
  facts = ''.join(f'| {name} | {value} |\n' for name, value in rows)
  made = 'Read by bertjax, and written for' if read else 'Pretrained with bertjax and converted to'
  held_out = f'\n## Held-out scores\n\n| score | value |\n|---|---|\n{scores}' if scores else ''
  hub: dict[str, Any] = dict(tags=['bertjax'])
  task = _task(name, models.build(model).causal)
  target, use = f'the names of {name}', ORIGINAL.format(original=original)
  if onnx:
    hub = dict(pipeline_tag=task, tags=['bertjax', 'onnx'])
    target, use = f'`model.onnx`, a graph of {name}', ONNX
  elif not original:
    hub |= dict(library_name='transformers', pipeline_tag=task)
    target, use = 'PyTorch `transformers`', USE
  hub['base_model'] = _base(meta['source'] if read else init_from.whole(config.init_from))
  hub |= _facts(run, hub.get('pipeline_tag', ''))
  more = CHOICES if name.endswith('ForMultipleChoice') else ''
  head = ''.join(f'{key}: {json.dumps(value)}\n' for key, value in hub.items() if value)
  return f"""---
{head}---

# {config.name or model.family}

{made} {target}. `parity.json` beside this file is
the receipt of the conversion: every tensor with its sha256, and how far the outputs of both sides
are apart. The licence is for you to choose: add `license:` to the head of this file.

| fact | value |
|---|---|
{facts}{held_out}
Versions: {', '.join(f'{name} {version}' for name, version in said['versions'].items())}.

{use.format(name=name, more=more)}"""


def _facts(run: Run, task: str) -> dict[str, Any]:
  """Returns what the hub reads of a run, by its names."""
  data, store = run.config.data, runs.store_of(run.workdir, run.config)
  texts = f'{data.input} {data.mixture} {data.train} {store.get("source", "")}'
  languages = runs.languages_of(run.workdir, run.config)
  return {
    'language': languages,
    'datasets': _hub('datasets', texts),
    'model-index': _index(run, task),
  }


def eval_results(run: Run) -> dict[str, str]:
  """Returns the files that the hub fills its leaderboards from (huggingface_hub.EvalResultEntry),
  name -> YAML: one of each set of examples that is of a data set of the hub, with the score that
  the task is known by, `config.best.metric`."""
  metric = METRICS.get(run.config.best.metric.rpartition('/')[2])
  return {
    f'{part}.yaml': RESULT.format(dataset=dataset, value=scores[metric], metric=metric, part=part)
    for part, (dataset, scores) in _scored(run).items()
    if dataset and metric in scores
  }


def _index(run: Run, task: str) -> list[dict[str, Any]]:
  """Returns the scores that the hub has names for, by the set that they are of."""
  title, results = run.config.name or run.config.model.family, []
  for part, (dataset, scores) in _scored(run).items():
    of = dict(type=dataset or title, name=f'{title}: {part}')
    metrics = [dict(type=name, value=value) for name, value in scores.items()]
    results.append(dict(task=dict(type=task), dataset=of, metrics=metrics))
  return [dict(name=title, results=results)] if task and results else []


def _scored(run: Run) -> dict[str, tuple[str, dict[str, float]]]:
  """Returns, by set of evaluation, the hub's name of its data set, '' where it has none, and the
  scores that the hub has names for."""
  sets: dict[str, tuple[str, dict[str, float]]] = {}
  for name, value in sorted(run.scores.items()):
    *_, part, metric = name.split('/')
    of_task = part == 'eval' or run.config.data.task  # a probe is of no task
    if metric in METRICS and of_task and math.isfinite(value):
      file = run.config.evals.get(part, {}).get('file') or run.config.data.dev
      _, scores = sets.setdefault(part, (''.join(_hub('datasets', file)[:1]), {}))
      scores[METRICS[metric]] = round(value, 4)
  return sets


def _task(name: str, causal: bool) -> str:
  """Returns the hub's task of a class, whose model may see what is before a token alone; '' of one
  without."""
  task = next((task for end, task in _TASKS.items() if name.endswith(end)), '')
  return 'text-generation' if causal and task == 'fill-mask' else task


def _base(source: str) -> str:
  """Returns the hub's name of a model, which its cache tells; '' of any other folder."""
  return ''.join(_hub('models', source)[:1]) if foreign.is_source(source) else ''


def _hub(kind: str, text: str) -> list[str]:
  """Returns the hub's names of models or datasets in sources: its cache and its URLs tell them."""
  cached = re.findall(rf'{kind}--([^/]+)/snapshots/', text)
  word, of_file = r'[^/@,+\s]+', '(?:resolve|blob|tree|raw)/'  # a name may have no owner
  url = rf'(?:https://huggingface\.co|hf:/)/{kind}/({word}(?:/(?!{of_file}){word})?)'
  named = re.findall(url, text)
  return sorted({*(name.replace('--', '/') for name in cached), *named})


def _name(text: str) -> str:
  """Returns a source, or patterns of files, without the folders of this machine."""

  def short(path: str) -> str:
    named = path.startswith(('tfds:', 'seqio:')) or '://' in path
    return path if named else re.sub(r'^(\w+:)?.*/', r'\1', path.rstrip('/'))

  # Of each language its patterns, of a pair of languages two files.
  return re.sub(r'[^,=+]+', lambda path: short(path[0]), text)
