"""Who may import whom: arrows between folders point down only, and the train path never touches
TensorFlow."""

import ast
import functools
import graphlib
import pathlib

import pytest
from mutation import mutation
from processes import ROOT

# A folder -> the folders that it may import. The ground is what all others stand on, single files
# beside the folders; doors are the commands, which nothing imports and which import anything.
GROUND = (
  'children', 'cited', 'counter_rng', 'data_contracts', 'dotted', 'errors', 'field_types',
  'json_files', 'options', 'registry', 'removed', 'synonyms', 'types',
)  # fmt: skip
ARROWS: dict[str, str] = {
  'machine': '',
  'sharding': 'machine',
  'kernels': '',
  'models': 'kernels',
  'objectives': 'kernels models',
  'optim': 'sharding',
  'metrics': 'machine',
  'text': 'machine',
  'vocab': 'machine',
  'store': 'machine text vocab',
  'examples': 'machine text vocab store',
  'evals': 'models objectives metrics text vocab store examples',
  'configs': 'models examples config',
  'config': 'optim examples',
  'checkpoint': 'machine sharding vocab config',
  'formats': 'models vocab',
  'sources': 'machine sharding models objectives vocab examples config checkpoint formats',
  'export': 'machine kernels models vocab formats sources',
  'train': """machine sharding kernels models objectives optim metrics vocab store examples config
    checkpoint formats sources""",
  'use': """machine sharding models objectives text vocab examples evals checkpoint
    formats sources""",
  'launch': 'metrics config checkpoint',
  'comparison': """machine metrics text vocab store examples evals config checkpoint train launch
    tools use""",
  'tools': """machine sharding kernels models objectives optim metrics store examples config formats
    train""",
}

HEAVY = ('tensorflow', 'seqio', 'tensorflow_datasets', 'tensorflow_text')
HEAVY_IN = ('bertjax.examples.seqio_tasks', 'bertjax.formats.originals.tf1')
# Besides the models: who boxes, unboxes or shards parameters.
LINEN_IN = (
  'bertjax.models', 'bertjax.sharding', 'bertjax.train.abstract_state', 'bertjax.train.phase',
  'bertjax.tools.bench.parts.own_step',
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


@functools.cache
def imports() -> dict[str, set[str]]:
  """Module -> every module that it imports."""
  files = sorted([*ROOT.glob('bertjax/**/*.py'), *ROOT.glob('configs/**/*.py')])
  return {module_of(path): imported_by(path) for path in files}


def inside(module: str, *prefixes: str) -> bool:
  return any(module == prefix or module.startswith(prefix + '.') for prefix in prefixes)


def ours(module: str) -> set[str]:
  """The modules of this repository that a module imports; a name inside one counts as it."""
  found = set()
  for name in filter(lambda name: inside(name, 'bertjax', 'configs'), imports()[module]):
    while name not in imports():
      name = name.rpartition('.')[0]
    found.add(name)
  return found


def folder(module: str) -> str:
  """The row of a module: a folder, 'ground' or 'doors'."""
  first, _, rest = module.removeprefix('bertjax.').partition('.')
  if first in GROUND:
    return 'ground'
  return first if first in ARROWS and rest != '__main__' else 'doors'


@mutation(
  'import numpy as np\n',
  'import numpy as np\n\n\ndef later():\n  from bertjax.train import loop\n',
  file='bertjax/examples/layout.py',
)
@mutation(
  'import numpy as np\n',
  'import numpy as np\n\n\ndef later():\n  from bertjax.examples.plans import pairs\n',
  file='bertjax/counter_rng.py',
)
def test_arrows_point_down():
  allowed = {row: {'ground', row, *names.split()} for row, names in ARROWS.items()}
  allowed |= {'ground': {'ground'}, 'doors': {'ground', 'doors', *ARROWS}}
  found = {(folder(m), folder(name), f'{m} -> {name}') for m in imports() for name in ours(m)}
  assert not sorted(line for row, other, line in found if other not in allowed[row])
  used = {(row, other) for row, other, _ in found}
  unused = [
    (row, n) for row, names in ARROWS.items() for n in names.split() if (row, n) not in used
  ]
  assert not unused, 'rows of ARROWS that nothing needs'


@mutation(
  'import difflib\n',
  'import difflib\n\n\ndef later():\n  import bertjax.registry\n',
  file='bertjax/errors.py',
)
def test_there_are_no_circles():
  """Neither of folders, by the rows, nor of files."""
  graphlib.TopologicalSorter({row: names.split() for row, names in ARROWS.items()}).prepare()
  graphlib.TopologicalSorter({module: ours(module) - {module} for module in imports()}).prepare()


@mutation(
  'import hashlib\n',
  'import hashlib\n\n\ndef later():\n  import tensorflow as tf\n',
  file='bertjax/examples/loader.py',
  case='tensorflow',
)
@pytest.mark.parametrize(
  'packages, at_home', [(HEAVY, HEAVY_IN), (('flax',), LINEN_IN)], ids=['tensorflow', 'linen']
)
def test_a_package_stays_in_its_folders(packages, at_home):
  assert not [
    f'{module} -> {name}'
    for module, names in imports().items()
    for name in sorted(names)
    if inside(name, *packages) and not inside(module, *at_home)
  ]
