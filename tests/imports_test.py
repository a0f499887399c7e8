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
  'bertjax.convert': ('bertjax.convert', 'bertjax.models', 'bertjax.checkpoint.checkpoints'),
  'bertjax.sharding': (),
  'bertjax.train.timeline': (),
  'bertjax.optim.schedules': (),
  'bertjax.optim.optimizer': ('bertjax.optim.schedules', 'bertjax.optim.param_rules', 'bertjax.optim.stacked', 'bertjax.sharding'),
  'bertjax.optim.stacked': (),
  'bertjax.optim.param_rules': ('bertjax.sharding',),
  'bertjax.checkpoint.checkpoints': ('bertjax.checkpoint.manifest',),
  'bertjax.checkpoint.manifest': (),
  'bertjax.checkpoint.resume': ('bertjax.checkpoint.manifest',),
  'bertjax.metrics.writer': ('bertjax.metrics.ledger',),
  'bertjax.metrics.ledger': (),
  'bertjax.metrics.curves': (),
  'bertjax.studies.compare_masks': ('bertjax.metrics.curves', 'bertjax.train.loop', 'bertjax.data'),
  'bertjax.train.step': (),
  'bertjax.checkpoint.init_from': ('bertjax.checkpoint.checkpoints',),
  'bertjax.train.setup': (
    'bertjax.train.timeline', 'bertjax.sharding', 'bertjax.optim.optimizer', 'bertjax.train.step', 'bertjax.data',
  ),
  'bertjax.train.phase': (
    'bertjax.train.setup', 'bertjax.sharding', 'bertjax.train.step', 'bertjax.data', 'bertjax.evals',
  ),
  'bertjax.train.report': ('bertjax.train.phase', 'bertjax.data', 'bertjax.evals'),
  'bertjax.train.loop': ('bertjax',),
  'bertjax.main': ('bertjax.train.loop',),
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
