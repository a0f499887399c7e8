"""Who may import what: arrows point down only, and the train path never touches TensorFlow."""

import ast
import graphlib
import pathlib

from mutation import mutation

ROOT = pathlib.Path(__file__).resolve().parents[1]

# What a part may import besides itself and EVERYWHERE. The longest prefix of a module is its row.
EVERYWHERE = (
  'bertjax.errors', 'bertjax.types', 'bertjax.field_types', 'bertjax.registry', 'bertjax.storage',
  'bertjax.checksums', 'bertjax.dotted', 'bertjax.durable',
)  # fmt: skip
GROUND = ('bertjax.data.counter_rng', 'bertjax.data.layout')
ARROWS = {
  'bertjax.errors': ('bertjax.children',),
  'bertjax.children': (),
  'bertjax.hosts': (),
  'bertjax.locks': (),
  'bertjax.checksums': (),
  'bertjax.dotted': (),
  'bertjax.durable': (),
  'bertjax.storage': (),
  'bertjax.mirror': ('bertjax.hosts',),
  'bertjax.types': (),
  'bertjax.registry': (),
  'bertjax.field_types': (),
  'bertjax.options': (),
  'bertjax.config_keys': (),
  'bertjax.config_files': ('bertjax.schema',),
  'bertjax.schema': (
    'bertjax.config_keys', 'bertjax.options', 'bertjax.optim', 'bertjax.sources',
    'bertjax.train.timeline', 'configs.common',
  ),
  'bertjax.malloc': (),
  'bertjax.sharding': ('bertjax.malloc',),
  'bertjax.sources': (),
  'bertjax.kernels': (),
  'bertjax.models': ('bertjax.kernels',),
  'bertjax.objectives': ('bertjax.models', 'bertjax.kernels'),
  'bertjax.convert': (
    'bertjax.models', 'bertjax.kernels', 'bertjax.data.labelled.common.tag_sets',
    'bertjax.data.vocab', 'bertjax.checkpoint.checkpoints',
    'bertjax.checkpoint.manifest', 'bertjax.checkpoint.reading',
    'bertjax.checkpoint.resume', 'bertjax.checkpoint.task_heads', 'bertjax.mirror',
    'bertjax.train.timeline', 'configs',
  ),
  'bertjax.optim': ('bertjax.sharding', 'bertjax.options'),
  'bertjax.checkpoint': (
    'bertjax.data.vocab', 'bertjax.hosts', 'bertjax.locks', 'bertjax.mirror',
  ),
  'bertjax.checkpoint.encoders': ('bertjax.convert.families',),
  'bertjax.checkpoint.init_from': (
    'bertjax.checkpoint', 'bertjax.convert', 'bertjax.data.vocab', 'bertjax.mirror',
    'bertjax.sources',
  ),
  'bertjax.checkpoint.teacher': (
    'bertjax.checkpoint', 'bertjax.data.vocab',
  ),
  'bertjax.metrics': (),
  'bertjax.data': (),
  'bertjax.data.ahead': (),
  'bertjax.data.counter_rng': (),
  'bertjax.data.layout': (),
  'bertjax.data.packing': (),
  'bertjax.data.recipes': ('bertjax.sources',),
  'bertjax.data.sentences': (),
  'bertjax.data.text': (),
  'bertjax.data.vocab': ('bertjax.data.text',),
  'bertjax.data.store': (
    *GROUND, 'bertjax.data.text', 'bertjax.data.vocab', 'bertjax.locks',
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
    'bertjax.data.plans', 'bertjax.data.masking', 'bertjax.options',
  ),
  'bertjax.data.loader': (),
  'bertjax.data.ensure_store': (
    'bertjax.children', 'bertjax.data.labelled.common', 'bertjax.data.store',
  ),
  'bertjax.data.seqio_tasks': ('bertjax.data',),
  'bertjax.data.labelled': (
    *GROUND, 'bertjax.data.text', 'bertjax.data.vocab', 'bertjax.data.store', 'bertjax.options',
    'bertjax.data.seqio_tasks.loaded', 'bertjax.data.seqio_tasks.row_stream',
  ),
  'bertjax.data.labelled.common.durations': (
    'bertjax.data.labelled.common', 'bertjax.train.timeline',
  ),
  'bertjax.evals': ('bertjax.objectives', 'bertjax.data', 'bertjax.options'),
  'bertjax.train': (
    'bertjax.checkpoint', 'bertjax.data', 'bertjax.evals', 'bertjax.hosts', 'bertjax.kernels',
    'bertjax.metrics', 'bertjax.mirror', 'bertjax.models', 'bertjax.objectives', 'bertjax.optim',
    'bertjax.options', 'bertjax.presets', 'bertjax.schema', 'bertjax.sharding',
  ),
  'bertjax.studies': (
    'bertjax.config_files', 'bertjax.data', 'bertjax.metrics', 'bertjax.train',
  ),
  'bertjax.studies.known_language': (
    'bertjax.data', 'bertjax.evals', 'bertjax.metrics', 'bertjax.train', 'configs',
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
  ),
  'bertjax.use.finetuned': (
    'bertjax.data.labelled', 'bertjax.data.sentences', 'bertjax.evals.squad', 'bertjax.use',
  ),
  'bertjax.model': (
    'bertjax.use', 'bertjax.data.sentences', 'bertjax.data.vocab', 'bertjax.evals.fill_mask',
    'bertjax.objectives', 'bertjax.sharding',
  ),
  'bertjax.predict': ('bertjax.use', 'bertjax.data.sentences', 'bertjax.metrics'),
  'bertjax.embed': ('bertjax.use', 'bertjax.metrics'),
  'bertjax.__main__': (),
  'bertjax.cluster': (),
  'bertjax.presets': (),
  'bertjax.launch': ('bertjax.checkpoint', 'bertjax.schema'),
  'bertjax.sweep': (
    'bertjax.checkpoint', 'bertjax.config_files', 'bertjax.data', 'bertjax.launch',
    'bertjax.train.pace',
  ),
  'bertjax.main': (
    'bertjax.cluster', 'bertjax.config_files', 'bertjax.data.labelled.common', 'bertjax.malloc',
    'bertjax.presets', 'bertjax.train',
  ),
  'bertjax.replay': (
    'bertjax.checkpoint', 'bertjax.hosts', 'bertjax.metrics', 'bertjax.mirror', 'bertjax.train',
  ),
  'bertjax.recipe': ('bertjax.config_files', 'bertjax.schema', 'bertjax.sources'),
  'bertjax.prepare': ('bertjax.data', 'bertjax.metrics'),
  'bertjax.vocab': ('bertjax.data', 'bertjax.metrics'),
  'configs': ('bertjax.models', 'bertjax.data.recipes', 'bertjax.sources'),
}  # fmt: skip
# (who, whom) -> why it stands against the arrows, for now.
EXCEPTIONS = {
  ('bertjax.evals', 'bertjax.kernels'): 'until the objectives score tokens themselves',
  ('bertjax.data.ensure_store', 'bertjax.data.seqio_tasks'): 'flags of prepare',
}

HEAVY = ('tensorflow', 'seqio', 'tensorflow_datasets', 'tensorflow_text')
HEAVY_IN = ('bertjax.data.seqio_tasks', 'bertjax.convert.originals.tf1')
# Besides the models: who boxes, unboxes or shards parameters.
LINEN_IN = (
  'bertjax.models', 'bertjax.sharding', 'bertjax.train.setup', 'bertjax.train.phase',
  'bertjax.bench.own_step',
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
  wrong, needed = [], set()
  for module in sorted(IMPORTS.keys() - {'bertjax'}):
    row = max((part for part in ARROWS if inside(module, part)), key=len, default=None)
    if row is None:
      wrong.append(f'{module} has no row in ARROWS: say what it may import')
      continue
    for name in sorted(ours(module)):
      if not inside(name, row, *ARROWS[row], *EVERYWHERE):
        excuse = {(a, b) for a, b in EXCEPTIONS if inside(module, a) and inside(name, b)}
        needed |= excuse
        if not excuse:
          wrong.append(f'{module} -> {name}; of this house it may import {ARROWS[row]}')
  wrong += [f'{a} -> {b} is excused and not needed' for a, b in EXCEPTIONS.keys() - needed]
  assert not wrong, '\n'.join(wrong)


def test_every_row_has_a_module():
  assert not [row for row in ARROWS if row not in IMPORTS and row != 'configs']


@mutation(
  'imports: a circle of two modules',
  'bertjax/errors.py',
  'import difflib\n',
  'import difflib\n\n\ndef later():\n  import bertjax.registry\n',
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
