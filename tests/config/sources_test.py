"""Every value of every recipe says where it is from, and the source goes with the value."""

import functools
import importlib
import re

import pytest
from ml_collections import ConfigDict
from mutation import mutation
from processes import ROOT
from systems import NAMES as CONFIGS

from bertjax import cited as sources
from bertjax.cited import Recipe, cited, reattribute, source_of
from bertjax.config import schema
from bertjax.errors import UserError

# A file of a repository, a part of a paper, a reason of ours, or that it was not read.
SAID = re.compile(
  r'[\w.-]+/\S+\.(py|sh|md|json|yaml|gin|ipynb)\b|\w paper, (section|table|appendix) \w'
  r'|^ours: \w|\(unverified\)'
)
# What a system is made of: its recipe says it, not the defaults of the house.
OWN = re.compile(
  r'config\.(total_steps|batch_size|length|phases|data\.plan|data\.mask|model|objective|optimizer)\b'
)


def arguments_of(name: str) -> list[str]:
  """Every size, or other argument, that a config file takes: it lists them where it refuses one."""
  with pytest.raises(UserError) as error:
    importlib.import_module(f'configs.{name}').get_config('?')
  return re.search(r'expected one of ([^;]*)', str(error.value))[1].split(', ')


@functools.cache
def listing(name: str) -> dict[str, list[schema.Row]]:
  """The rows of every size of a config."""
  get_config = importlib.import_module(f'configs.{name}').get_config
  return {argument: schema.listing(get_config(argument)) for argument in arguments_of(name)}


@pytest.mark.parametrize('name', CONFIGS)
@mutation('cited(TABLE, total_steps=500_000', 'dict(total_steps=500_000', case='roberta')
@mutation("phases = cited('BERT paper, appendix A.2', phase1", 'phases = dict(phase1', case='bert')
@mutation("'electra/pretrain/pretrain_helpers.py:mask'", "'as the original does'", case='electra')
def test_every_value_has_a_source(name):
  lacking = []
  for argument, rows in listing(name).items():
    for row in rows:
      common = row.source in (sources.DEFAULT, sources.THE_RUN)
      if not (common or SAID.search(row.source)) or (
        row.source == sources.DEFAULT and OWN.match(row.key)
      ):
        lacking.append(f'{name}:{argument}: {row.key}={row.value} has {row.source!r}')
  assert not lacking, '\n'.join(lacking)


def unverified() -> list[str]:
  """Rows of the page: config and sizes, key and value, source."""
  sizes: dict[tuple[str, str, str], list[str]] = {}
  for name in CONFIGS:
    for argument, rows in listing(name).items():
      for row in rows:
        if sources.UNVERIFIED in row.source and argument.split('_')[0] not in ('test', 'tiny'):
          found = (name, f'{row.key.removeprefix("config.")}={row.value}', row.source)
          sizes.setdefault(found, []).append(argument)
  return [
    f'| {name}: {", ".join(which)} | `{value}` | {source} |'
    for (name, value, source), which in sizes.items()
  ]


def test_the_page_lists_what_is_not_verified():
  page = (ROOT / 'docs' / 'recipes.md').read_text()
  listed = [line for line in page.splitlines() if line.startswith('| ') and '=' in line]
  expected = unverified()
  assert listed == expected, 'the table of docs/recipes.md should be:\n' + '\n'.join(expected)


def recipe() -> Recipe:
  c = Recipe()
  c.update(cited('paper', steps=100, model=dict(width=8, mask=cited('flag', rate=0.15))))
  c.update(cited('code', warmup=c.get_ref('steps') // 10))
  return c


def test_a_source_goes_with_its_value_into_every_section():
  c = recipe()
  found = {key: source_of(c, key) for key in ('steps', 'model.width', 'model.mask.rate', 'warmup')}
  assert found == {
    'steps': 'paper', 'model.width': 'paper', 'model.mask.rate': 'flag', 'warmup': 'code',
  }  # fmt: skip
  assert source_of(c, 'model') == 'flag; paper'
  other = ConfigDict(dict(section=c.model))
  assert source_of(other, 'section.mask.rate') == 'flag'


@pytest.mark.parametrize(
  'write',
  [
    lambda c: setattr(c, 'steps', 100),
    lambda c: c.update(steps=100),
    lambda c: c.update(dict(steps=100)),
    lambda c: c.update_from_flattened_dict({'steps': 100}),
  ],
  ids=['attribute', 'keyword', 'dict', 'flat'],
)
@mutation('value)\n    self._sources.pop(key, None)', 'value)\n    self._sources.get(key)')
def test_a_value_written_without_a_source_has_none(write):
  c = recipe()
  write(c)
  assert source_of(ConfigDict(dict(all=c)), 'all') == ''
  assert source_of(c, 'steps') == '' and source_of(c, 'model.width') == 'paper'


def test_the_later_source_holds():
  c = recipe()
  c.update(cited('ours: less', steps=50, model=dict(mask=dict(rate=0.3))))
  assert source_of(c, 'steps') == 'ours: less' and source_of(c, 'model.width') == 'paper'
  assert source_of(c, 'model.mask.rate') == 'ours: less'
  reattribute(c, 'guess (unverified)', 'model.width')
  assert c.model.width == 8 and source_of(c, 'model.width') == 'guess (unverified)'


@mutation('same = found.value == value or', 'same = True or')
def test_a_source_names_its_own_number_where_a_reference_has_moved():
  c = recipe()
  c.steps = 50
  assert c.warmup == 5 and source_of(c, 'warmup') == 'code (10 there)'


def test_dicts_of_values_are_joined_with_their_sources():
  mask = cited('a', rate=0.15, rule='bert') | cited('b', rule='spans') | dict(words=10)
  assert dict(mask) == dict(rate=0.15, rule='spans', words=10)
  assert mask.sources == dict(rate='a', rule='b')
  assert mask.without('rule').sources == dict(rate='a')
  assert cited('c', mask=mask)['mask'].sources == dict(rate='a', rule='b', words='c')
  with pytest.raises(ValueError, match='expected the source of rate'):
    cited(' ', rate=0.15)
