"""The wheel: what it brings, and that its commands work outside of a checkout."""

import ast
import os
import pathlib
import re
import subprocess
import sys
from importlib import metadata

import pytest
import wheels
from mutation import mutation
from processes import ROOT

import bertjax
from bertjax import __main__ as commands
from bertjax.config import command_line


@pytest.fixture(scope='module')
def site(tmp_path_factory):
  """A directory that holds what the wheel installs, and nothing of the checkout."""
  return wheels.of_ours(tmp_path_factory.mktemp('wheel'))


@mutation('include = ["bertjax*", "configs*"]', 'include = ["bertjax*"]', file='pyproject.toml')
def test_configs_are_imported_from_the_wheel(site, tmp_path):
  code = 'import configs.bert as c, bertjax; print(c.__file__, bertjax.__file__, c.get_config())'
  done = wheels.run(site, tmp_path, '-c', code)
  assert done.returncode == 0, done.stderr
  assert done.stdout.count(str(site)) == 2


@mutation('["*.json"]', '["*.none"]', file='pyproject.toml')
def test_all_of_the_package_is_in_the_wheel(site):
  kinds = ('*.py', '*.json', 'py.typed')
  files = lambda root: {p.relative_to(root) for k in kinds for p in root.glob(f'bertjax/**/{k}')}
  assert files(site) == files(ROOT)


@mutation('requirements-train.txt', 'requirements-prepare.txt', file='pyproject.toml')
def test_dependencies_are_those_of_the_requirements_files(site):
  (info,) = site.glob('*.dist-info')
  found = metadata.Distribution.at(info)
  kept = lambda path: {
    line.split('>=')[0].split('==')[0].lower()
    for line in path.read_text().splitlines()
    if line and not line.startswith('#')
  }
  expected = {p.stem.partition('-')[2]: kept(p) for p in ROOT.glob('requirements-*.txt')}
  del expected['dev']  # its lines name other files
  needed = {'train': set()} | {extra: set() for extra in found.metadata.get_all('Provides-Extra')}
  for line in found.requires or ():
    requirement, _, extra = line.partition('; extra == ')
    name = requirement.translate(str.maketrans('<>=', '   ')).split()[0].lower()
    needed[extra.strip('"') or 'train'].add(name)
  assert needed == expected
  assert found.metadata['License-Expression'] == 'Apache-2.0'
  assert 'The bertjax authors' in (info / 'licenses' / 'LICENSE').read_text()


@mutation("__version__ = '", "__version__ = '9")
def test_package_wheel_and_changelog_have_one_version(site, tmp_path):
  (info,) = site.glob('*.dist-info')
  assert metadata.Distribution.at(info).version == bertjax.__version__
  newest = re.search(r'^## \[([\d.]+)\]', (ROOT / 'CHANGELOG.md').read_text(), re.MULTILINE)
  assert newest and newest[1] == bertjax.__version__
  code = "import bertjax, sys; print(bertjax.__version__); assert 'jax' not in sys.modules"
  done = wheels.run(site, tmp_path, '-c', code)
  assert done.stdout.strip() == bertjax.__version__, done.stderr


def test_commands_are_listed_without_heavy_imports(site, tmp_path):
  heavy = "'jax', 'tensorflow', 'numpy'"
  code = f'import bertjax.__main__ as m, sys; m.main([]); assert not {{{heavy}}} & set(sys.modules)'
  done = wheels.run(site, tmp_path, '-c', code)
  assert done.returncode == 0, done.stderr
  listed = wheels.run(site, tmp_path, '-m', 'bertjax')
  assert listed.stdout == done.stdout
  for command in commands.COMMANDS:
    assert f'python -m bertjax.{command} ' in listed.stdout
  assert all(len(line) <= 100 for line in listed.stdout.splitlines())
  wrong = wheels.run(site, tmp_path, '-m', 'bertjax', 'train')
  assert wrong.returncode == 1 and "expected no arguments, got 'train'" in wrong.stderr


@mutation("if __name__ == 'types':", 'if False:')
def test_a_file_that_is_run_by_its_path_names_the_command():
  path = pathlib.Path(bertjax.__file__).parent / 'main.py'
  done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
  assert done.stderr == f'{path}: expected python -m bertjax.main\n'


@pytest.mark.parametrize('lacking', ['jax', 'rich'])  # imported first, and later
@mutation('  sys.excepthook = _shown', '  pass', file='bertjax/__init__.py')
@mutation('or of_users or', 'or not of_users or', file='bertjax/__init__.py')
def test_an_environment_without_the_packages_is_named(tmp_path, lacking):
  (tmp_path / 'sitecustomize.py').write_text(f'import sys\nsys.modules[{lacking!r}] = None\n')
  command = [sys.executable, '-m', 'bertjax.main', '--config=configs/bert.py:test', '--workdir=w']
  environ = dict(os.environ, PYTHONPATH=f'{tmp_path}:{ROOT}')
  done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
  assert done.returncode == 1, done.stderr
  assert done.stderr.startswith(f'bertjax: {lacking} is not installed for {sys.executable}: activ')
  assert len(done.stderr.splitlines()) == 1


@mutation('if sys.version_info < (3, 11):', 'if False:')
def test_an_old_python_is_named():
  code = "import sys; sys.version_info, sys.version = (3, 10), '3.10.1 (main)'; import bertjax"
  run = subprocess.run(
    [sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=False
  )
  assert run.stderr == 'bertjax: expected Python 3.11 or newer, got 3.10.1\n'


@mutation("'vocab', ", '', file='bertjax/__main__.py')
def test_every_command_is_in_the_list():
  """A module that is run by itself is a command, but for the benches' and workers' own."""
  found = set()
  for path in ROOT.glob('bertjax/**/*.py'):
    runs = [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.If)]
    if any(ast.unparse(n.test) == "__name__ == '__main__'" for n in runs):
      parts = path.relative_to(ROOT / 'bertjax').with_suffix('').parts
      found.add('.'.join(p for p in parts if p != '__main__'))
  assert found - {''} == set(commands.COMMANDS)


@mutation('if pathlib.Path(name).exists() or', 'if False or')
@mutation('FOLDER not in file.parents', 'file.parent != FOLDER')
def test_a_path_of_a_config_is_found_where_there_is_no_checkout(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  inside = str(command_line.FOLDER / 'bert.py')
  given = ['main', '--config=configs/bert.py:base', '--config', 'configs/bert.py']
  for more, size in ((given[:2], ':base'), (given, ''), (given[:1] + given[2:], '')):
    assert command_line.located(more) == ['main', f'--config={inside}{size}']
  deeper = command_line.located(['--config=configs/finetune/glue.py:sst2'])
  assert deeper == [f'--config={command_line.FOLDER / "finetune" / "glue.py"}:sst2']
  for other in (
    '--config=configs/none.py', '--config=bert.py', '--config.data.input=configs/bert.py',
    '--config=../configs/bert.py', '--workdir configs/bert.py', '--workdir=configs/bert.py',
  ):  # fmt: skip
    assert command_line.located(['main', *other.split()]) == ['main', *other.split()]
  (tmp_path / 'configs').mkdir()
  (tmp_path / 'configs/bert.py').touch()
  assert command_line.located(given[:2]) == given[:2]
