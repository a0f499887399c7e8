"""Who may import what: arrows point down only, and the train path never touches TensorFlow."""

import ast
import graphlib
import pathlib

from mutation import mutation

ROOT = pathlib.Path(__file__).resolve().parents[1]

# What a part may import besides itself and EVERYWHERE. The longest prefix of a module is its row.
EVERYWHERE = (
  'bertjax.errors', 'bertjax.types', 'bertjax.data.types', 'bertjax.config.dotted',
  'bertjax.config.field_types', 'bertjax.config.registry', 'bertjax.config.removed',
  'bertjax.storage.checksums', 'bertjax.storage.copies', 'bertjax.storage.durable',
  'bertjax.storage.remote',
)  # fmt: skip
GROUND = ('bertjax.data.counter_rng', 'bertjax.data.layout')
ARROWS = {
  'bertjax.errors': ('bertjax.machine.children',),
  'bertjax.types': (),
  'bertjax.machine': (),
  'bertjax.storage': (),
  'bertjax.storage.mirror': ('bertjax.machine.hosts',),
  'bertjax.config': (),
  'bertjax.config.command_line': ('bertjax.config.schema',),
  'bertjax.config.schema': (
    'bertjax.config', 'bertjax.optim', 'bertjax.train.timeline', 'configs.common',
  ),
  'bertjax.sharding': ('bertjax.machine.malloc',),
  'bertjax.kernels': (),
  'bertjax.models': ('bertjax.kernels',),
  'bertjax.objectives': ('bertjax.models', 'bertjax.kernels'),
  'bertjax.convert': (
    'bertjax.models', 'bertjax.kernels',
    'bertjax.data.vocab', 'bertjax.checkpoint.checkpoints', 'bertjax.checkpoint.finite',
    'bertjax.checkpoint.head_classes', 'bertjax.checkpoint.manifest', 'bertjax.checkpoint.reading',
    'bertjax.checkpoint.resume', 'bertjax.checkpoint.task_heads', 'bertjax.storage.mirror',
    'bertjax.train.timeline', 'configs',
  ),
  'bertjax.convert.__main__': (
    'bertjax.checkpoint.reading', 'bertjax.config.command_line', 'bertjax.convert',
  ),
  'bertjax.optim': ('bertjax.sharding', 'bertjax.config.options'),
  'bertjax.checkpoint': (
    'bertjax.data.vocab', 'bertjax.machine.hosts', 'bertjax.sharding', 'bertjax.storage',
  ),
  'bertjax.checkpoint.encoders': ('bertjax.convert.families',),
  'bertjax.checkpoint.head_classes': (
    'bertjax.checkpoint.task_heads', 'bertjax.data.labelled.common.tag_sets',
    'bertjax.train.timeline',
  ),
  'bertjax.checkpoint.init_from': (
    'bertjax.checkpoint', 'bertjax.convert', 'bertjax.data.vocab', 'bertjax.storage.mirror',
  ),
  'bertjax.checkpoint.model_fields': ('bertjax.checkpoint', 'bertjax.config.sources'),
  'bertjax.checkpoint.teacher': (
    'bertjax.checkpoint', 'bertjax.data.vocab', 'bertjax.sharding',
  ),
  'bertjax.metrics': (),
  'bertjax.data': (),
  'bertjax.data.ahead': (),
  'bertjax.data.types': (),
  'bertjax.data.counter_rng': (),
  'bertjax.data.layout': (),
  'bertjax.data.packing': (),
  'bertjax.data.recipes': ('bertjax.config.sources',),
  'bertjax.data.sentences': (),
  'bertjax.data.text': (),
  'bertjax.data.vocab': ('bertjax.data.text',),
  'bertjax.data.store': (
    *GROUND, 'bertjax.data.text', 'bertjax.data.vocab', 'bertjax.storage.locks',
  ),
  'bertjax.data.column_stream': GROUND,
  'bertjax.data.language_sampling': GROUND,
  'bertjax.data.targets': GROUND,
  'bertjax.data.plans': (
    *GROUND, 'bertjax.data.ahead', 'bertjax.data.column_stream', 'bertjax.data.language_sampling',
  ),
  'bertjax.data.masking': (*GROUND, 'bertjax.data.targets'),
  'bertjax.data.examples': (
    *GROUND, 'bertjax.data.packing', 'bertjax.data.language_sampling', 'bertjax.data.plans',
    'bertjax.data.plan_and_mask', 'bertjax.data.store',
  ),
  'bertjax.data.plan_and_mask': (
    'bertjax.data.plans', 'bertjax.data.masking', 'bertjax.config.options',
  ),
  'bertjax.data.loader': (),
  'bertjax.data.ensure_store': (
    'bertjax.machine.children', 'bertjax.data.store',
  ),
  'bertjax.data.unread_text': (
    'bertjax.data.plan_and_mask', 'bertjax.data.seqio_tasks.names', 'bertjax.data.store',
    'bertjax.data.text', 'bertjax.data.vocab.vocabulary',
  ),
  'bertjax.data.readers': (
    'bertjax.data.ensure_store', 'bertjax.data.examples', 'bertjax.data.labelled.common',
    'bertjax.data.store', 'bertjax.data.seqio_tasks', 'bertjax.data.unread_text',
  ),
  'bertjax.data.seqio_tasks': ('bertjax.data',),
  'bertjax.data.labelled': (
    *GROUND, 'bertjax.config.options', 'bertjax.data.text', 'bertjax.data.vocab',
    'bertjax.data.store', 'bertjax.data.seqio_tasks.loaded', 'bertjax.data.seqio_tasks.row_stream',
    'bertjax.data.seqio_tasks.task_columns',
  ),
  'bertjax.data.labelled.common.durations': (
    'bertjax.data.labelled.common', 'bertjax.train.timeline',
  ),
  'bertjax.evals': ('bertjax.objectives', 'bertjax.data', 'bertjax.config.options'),
  'bertjax.train': (
    'bertjax.checkpoint', 'bertjax.config', 'bertjax.data', 'bertjax.evals',
    'bertjax.machine.hosts', 'bertjax.kernels', 'bertjax.metrics', 'bertjax.models',
    'bertjax.objectives', 'bertjax.optim', 'bertjax.sharding', 'bertjax.storage.mirror',
  ),
  'bertjax.train.segments': (
    'bertjax.convert.tokenizer.layouts', 'bertjax.data.labelled.common', 'bertjax.models',
  ),
  'bertjax.bench': ('bertjax',),
  'bertjax.preflight': ('bertjax',),
  'bertjax.use': (
    'bertjax.checkpoint', 'bertjax.convert', 'bertjax.data.sentences', 'bertjax.data.text',
    'bertjax.data.vocab', 'bertjax.kernels', 'bertjax.models', 'bertjax.sharding',
  ),
  'bertjax.use.flags': (
    'bertjax.checkpoint.reading', 'bertjax.data.labelled.common.records',
    'bertjax.data.labelled.common.questions', 'bertjax.data.labelled.common.squad_json',
    'bertjax.data.labelled.common.tagged', 'bertjax.data.text', 'bertjax.model',
    'bertjax.sharding',
  ),
  'bertjax.use.finetuned': (
    'bertjax.data.labelled', 'bertjax.data.sentences', 'bertjax.evals.squad', 'bertjax.use',
  ),
  'bertjax.model': (
    'bertjax.use', 'bertjax.data.sentences', 'bertjax.data.vocab', 'bertjax.evals.fill_mask',
    'bertjax.objectives', 'bertjax.sharding',
  ),
  'bertjax.predict': (
    'bertjax.config.command_line', 'bertjax.use', 'bertjax.data.sentences', 'bertjax.metrics',
  ),
  'bertjax.embed': ('bertjax.config.command_line', 'bertjax.use', 'bertjax.metrics'),
  'bertjax.__main__': (),
  'bertjax.launch': ('bertjax.checkpoint', 'bertjax.config.schema', 'bertjax.metrics.lines'),
  'bertjax.sweep': (
    'bertjax.checkpoint', 'bertjax.config.command_line', 'bertjax.config.presets', 'bertjax.data',
    'bertjax.launch', 'bertjax.train.pace',
  ),
  'bertjax.main': (
    'bertjax.config', 'bertjax.data.labelled.common', 'bertjax.machine', 'bertjax.train',
  ),
  'bertjax.replay': (
    'bertjax.checkpoint', 'bertjax.config.command_line', 'bertjax.machine.hosts',
    'bertjax.metrics', 'bertjax.storage.mirror', 'bertjax.train',
  ),
  'bertjax.recipe': ('bertjax.config',),
  'bertjax.prepare': ('bertjax.config.command_line', 'bertjax.data', 'bertjax.metrics'),
  'bertjax.vocab': ('bertjax.config', 'bertjax.data', 'bertjax.metrics'),
  'configs': ('bertjax.models', 'bertjax.data.recipes', 'bertjax.config.sources'),
}  # fmt: skip

HEAVY = ('tensorflow', 'seqio', 'tensorflow_datasets', 'tensorflow_text')
HEAVY_IN = ('bertjax.data.seqio_tasks', 'bertjax.convert.originals.tf1')
# Besides the models: who boxes, unboxes or shards parameters.
LINEN_IN = (
  'bertjax.models', 'bertjax.sharding', 'bertjax.train.abstract_state', 'bertjax.train.phase',
  'bertjax.bench.parts.own_step',
)  # fmt: skip


def module_of(path: pathlib.Path) -> str:
  parts = path.relative_to(ROOT).with_suffix('').parts
  return '.'.join(p for p in parts if p != '__init__')


def imported_by(path: pathlib.Path) -> set[str]:
  """Every module that the file imports, at any depth; `from a import b` counts as a.b."""
  found = set()
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      found |= {a.name for a in node.names}
    elif isinstance(node, ast.ImportFrom) and node.module:
      found |= {f'{node.module}.{a.name}' for a in node.names}
  return found


IMPORTS = {
  module_of(path): imported_by(path)
  for path in sorted([*ROOT.glob('bertjax/**/*.py'), *ROOT.glob('configs/**/*.py')])
}


def inside(module: str, *prefixes: str) -> bool:
  return any(module == prefix or module.startswith(prefix + '.') for prefix in prefixes)


def ours(module: str) -> set[str]:
  """The modules of this repository that a module imports; a name inside one counts as it."""
  found = set()
  for name in filter(lambda name: inside(name, 'bertjax', 'configs'), IMPORTS[module]):
    while name not in IMPORTS:
      name = name.rpartition('.')[0]
    found.add(name)
  return found


@mutation(
  'imports: the ground of data knows the plans',
  'bertjax/data/counter_rng.py',
  'import numpy as np\n',
  'import numpy as np\n\n\ndef later():\n  from bertjax.data.plans import pairs\n',
)
def test_arrows_point_down():
  wrong = []
  for module in sorted(IMPORTS.keys() - {'bertjax'}):
    row = max((part for part in ARROWS if inside(module, part)), key=len, default=None)
    if row is None:
      wrong.append(f'{module} has no row in ARROWS: say what it may import')
      continue
    for name in sorted(ours(module)):
      if not inside(name, row, *ARROWS[row], *EVERYWHERE):
        wrong.append(f'{module} -> {name}; of this house it may import {ARROWS[row]}')
  assert not wrong, '\n'.join(wrong)


def test_every_row_has_a_module():
  assert not [row for row in ARROWS if row not in IMPORTS and row != 'configs']


@mutation(
  'imports: a circle of two modules',
  'bertjax/errors.py',
  'import difflib\n',
  'import difflib\n\n\ndef later():\n  import bertjax.config.registry\n',
)
def test_there_are_no_circles():
  graphlib.TopologicalSorter({module: ours(module) - {module} for module in IMPORTS}).prepare()


@mutation(
  'imports: the loader reads TensorFlow',
  'bertjax/data/loader.py',
  'import hashlib\n',
  'import hashlib\n\n\ndef later():\n  import tensorflow as tf\n',
)
def test_tensorflow_stays_in_its_folder():
  assert not [
    f'{module} -> {name}'
    for module, names in IMPORTS.items()
    for name in sorted(names)
    if inside(name, *HEAVY) and not inside(module, *HEAVY_IN)
  ]


def test_linen_stays_in_the_models():
  assert not [
    f'{module} -> {name}'
    for module, names in IMPORTS.items()
    for name in sorted(names)
    if inside(name, 'flax') and not inside(module, *LINEN_IN)
  ]
