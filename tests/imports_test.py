"""Imports point down only, and the train path never touches TensorFlow."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]

# What a part may import from the house, besides `types` and `names`. The longest prefix wins.
ALLOWED = {
  'bertjax.types': (),
  'bertjax.names': (),
  'bertjax.flops': ('bertjax.types',),
  'bertjax.kernels': ('bertjax.kernels',),
  'bertjax.models': ('bertjax.models', 'bertjax.kernels'),
  'bertjax.objectives': (
    'bertjax.objectives', 'bertjax.models', 'bertjax.kernels', 'bertjax.flops',
  ),
  'bertjax.data': ('bertjax.data',),
  'bertjax.evals': (
    'bertjax.evals', 'bertjax.objectives', 'bertjax.data', 'bertjax.kernels',
  ),
  'bertjax.convert': ('bertjax.convert', 'bertjax.models', 'bertjax.checkpoint'),
  'bertjax.sharding': (),
  'bertjax.phases': (),
  'bertjax.schedules': (),
  'bertjax.optim': ('bertjax.schedules', 'bertjax.rules', 'bertjax.layerwise', 'bertjax.sharding'),
  'bertjax.layerwise': (),
  'bertjax.rules': ('bertjax.sharding',),
  'bertjax.checkpoint': ('bertjax.manifest',),
  'bertjax.manifest': (),
  'bertjax.resume': ('bertjax.manifest',),
  'bertjax.metrics': ('bertjax.ledger',),
  'bertjax.ledger': (),
  'bertjax.curves': (),
  'bertjax.compare_masks': ('bertjax.curves', 'bertjax.train', 'bertjax.data'),
  'bertjax.step': (),
  'bertjax.init_from': ('bertjax.checkpoint',),
  'bertjax.setup': (
    'bertjax.phases', 'bertjax.sharding', 'bertjax.optim', 'bertjax.step', 'bertjax.data',
  ),
  'bertjax.stepper': (
    'bertjax.setup', 'bertjax.sharding', 'bertjax.step', 'bertjax.data', 'bertjax.evals',
  ),
  'bertjax.report': ('bertjax.stepper', 'bertjax.data', 'bertjax.evals'),
  'bertjax.train': ('bertjax',),
  'bertjax.main': ('bertjax.train',),
  'bertjax.prepare': ('bertjax.data',),
  'bertjax.vocab': ('bertjax.data',),
  'bertjax.bench': ('bertjax',),
  'configs': (
    'configs.common', 'configs.bert', 'configs.roberta', 'configs.electra', 'bertjax.models.bert',
  ),
}  # fmt: skip
ANYWHERE = ('bertjax.types', 'bertjax.names')
HEAVY = ('tensorflow', 'seqio', 'tensorflow_datasets', 'tensorflow_text')
HEAVY_IN = tuple(f'bertjax/data/{name}.py' for name in ('sources', 'tasks', 'example_tasks'))


def files():
  return sorted([*ROOT.glob('bertjax/**/*.py'), *ROOT.glob('configs/*.py')])


def imports(path: pathlib.Path) -> set[str]:
  """Every module that the file imports, at any depth; `from a import b` counts as a.b."""
  found = set()
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      found |= {a.name for a in node.names}
    elif isinstance(node, ast.ImportFrom) and node.module:
      found |= {f'{node.module}.{a.name}' for a in node.names}
  return found


def inside(module: str, prefix: str) -> bool:
  return module == prefix or module.startswith(prefix + '.')


def module_of(path: pathlib.Path) -> str:
  parts = path.relative_to(ROOT).with_suffix('').parts
  return '.'.join(p for p in parts if p != '__init__')


@pytest.mark.parametrize('path', files(), ids=module_of)
def test_imports_point_down(path):
  module = module_of(path)
  if module == 'bertjax':
    return
  rule = max((k for k in ALLOWED if inside(module, k)), key=len, default=None)
  assert rule, f'{module} has no row in ALLOWED: say what it may import'
  ours = {m for m in imports(path) if inside(m, 'bertjax') or inside(m, 'configs')}
  wrong = {m for m in ours if not any(inside(m, p) for p in (*ALLOWED[rule], *ANYWHERE))}
  assert not wrong, f'{module} may import {ALLOWED[rule]}, but imports {sorted(wrong)}'


@pytest.mark.parametrize('path', files(), ids=module_of)
def test_tensorflow_stays_in_its_files(path):
  heavy = {m for m in imports(path) if any(inside(m, h) for h in HEAVY)}
  assert not heavy or str(path.relative_to(ROOT)) in HEAVY_IN


@pytest.mark.parametrize('path', files(), ids=module_of)
def test_linen_stays_in_the_models(path):
  linen = {m for m in imports(path) if inside(m, 'flax')}
  boundary = [f'bertjax/{f}.py' for f in ('sharding', 'setup', 'stepper', 'bench/own_step')]
  assert not linen or 'models' in path.parts or str(path.relative_to(ROOT)) in boundary
