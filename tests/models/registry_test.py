"""Models and objectives are found by their folders, say their fields, and are asked for by kind."""

import ast
import inspect
import pathlib
from typing import get_args, get_type_hints

import pytest
import systems
from mutation import mutation

from bertjax import registry
from bertjax.models.layers import basic, encoder, heads
from bertjax.objectives import lm, mlm

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Who may know a model by its name.
BY_NAME = ('bertjax/models', 'bertjax/formats', 'bertjax/export')
METADATA = {'model': {'name', 'family', 'size'}, 'objective': {'name'}}


def names_tested(source: str) -> list[int]:
  """Lines that compare or match `x.name` or `x.family`, where x ends in model."""

  def is_name(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
      attribute, owner = node.slice.value, ast.unparse(node.value)
    elif isinstance(node, ast.Attribute):
      attribute, owner = node.attr, ast.unparse(node.value)
    else:
      return False
    return attribute in ('name', 'family') and owner.split('.')[-1] in (
      'model',
      'm',
      'config_model',
    )

  found = []
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Compare):
      asked = [node.left, *node.comparators]
    elif isinstance(node, ast.Match):
      asked = [node.subject]
    else:
      continue
    found += [node.lineno for part in asked if is_name(part)]
  return found


def test_nobody_else_branches_on_the_name_of_a_model():
  assert names_tested("if config.model.name == 'bert': pass") == [1]
  assert names_tested("x = model['family'] in FAMILIES") == [1]
  assert not names_tested("x = config.name == 'a' or find(config.model.name)")
  wrong = [
    f'{path.relative_to(ROOT)}:{line}'
    for path in sorted(ROOT.glob('bertjax/**/*.py'))
    if not path.relative_to(ROOT).as_posix().startswith(BY_NAME)
    for line in names_tested(path.read_text())
  ]
  assert not wrong


@pytest.mark.parametrize('name', systems.NAMES)
@mutation("if field.name not in ('parent', 'name')", "if field.name != 'name'")
def test_options_are_the_fields_of_the_config(name):
  config = systems.tiny(name)
  for part in ('model', 'objective'):
    module = registry.find(f'bertjax.{part}s', config[part].name, part)
    options = getattr(module, part.upper()).options
    hints = get_type_hints(options, include_extras=True)
    assert {*hints} == {*config[part]} - METADATA[part] and 'parent' not in hints
    assert {*inspect.signature(options).parameters} == {*hints}


def test_types_of_choices_name_what_there_is():
  assert set(get_args(basic.Activation)) == set(basic.ACTIVATIONS)
  assert set(get_args(heads.PoolerActivation)) == {*heads.POOLERS, 'none'}
  assert set(get_args(basic.Initializer)) == set(basic.INITS)
  assert set(get_args(encoder.Sharing)) == {'none', 'all', *encoder.PARTS}


@pytest.mark.parametrize(
  'objective, model, fitting',
  [
    (mlm, 'xlnet', "'bert' or 'bigbird' or .* or 'span_boundary'"),
    (lm, 'bert', "'awd_lstm' or 'gpt' or 'transformer_xl'"),
  ],
)
def test_an_objective_refuses_a_model_of_another_kind(objective, model, fitting):
  config = systems.tiny(model)
  config.objective = dict(name='it', plus=0.0, unit='word')
  said = f"config.objective.name='it' needs config.model.name={fitting}, got '{model}'"
  with pytest.raises(ValueError, match=said):
    objective.make(config)
