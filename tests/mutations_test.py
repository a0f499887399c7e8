"""The mutations themselves: each can be applied, and the runner tells red from green."""

import pathlib
import subprocess
import time

import pytest

from tests import mutations


def test_each_edits_a_text_that_its_file_holds_once():
  texts, wrong = {}, []
  for m in mutations.noted():
    path = mutations.ROOT / m.file
    text = texts.setdefault(m.file, path.read_text() if path.exists() else '')
    if text.count(m.old) != 1 or m.old == m.new:
      wrong.append(f'{m}: {m.file} holds its text {text.count(m.old)} times')
  assert not wrong, '\n'.join(wrong)
  assert len(mutations.noted()) == len(set(mutations.noted())) > 100, 'one is noted twice'


def test_they_are_read_from_the_source(tmp_path, monkeypatch):
  monkeypatch.setattr(mutations, 'ROOT', tmp_path)
  (tmp_path / 'launch').mkdir()
  for name in ('f', 'g'):
    (tmp_path / f'launch/{name}.py').write_text(f'both old {name}')
  (tmp_path / 'a_test.py').write_text(
    "mutation('both', 'new', file='x')\n\nmutation('both', 'new')\n"
    "@mutation('old ' 'f', 'new', case='x-1')\n@other\ndef test_it(): pass\n"
  )
  named, two, one = mutations.noted_in(tmp_path / 'a_test.py')
  assert named == mutations.Mutation('x', 'both', 'new', 'a_test.py')
  assert two.file == 'launch/f.py and launch/g.py'
  assert one == mutations.Mutation('launch/f.py', 'old f', 'new', 'a_test.py::test_it[x-1]')


@pytest.fixture
def repository(tmp_path, monkeypatch):
  """Two commits: a.py, and then a change of b.py; returns a function that runs git there."""
  monkeypatch.setattr(mutations, 'ROOT', tmp_path)

  def git(*arguments):
    person = ['-c', 'user.name=a', '-c', 'user.email=a@b.c', '-c', 'commit.gpgsign=false']
    subprocess.run(['git', *person, *arguments], cwd=tmp_path, check=True, capture_output=True)

  git('init', '-q', '-b', 'main')
  for name in ('a.py', 'b.py'):
    (tmp_path / name).write_text(name)
    git('add', name)
    git('commit', '-qm', name)
  return git


def named(*files) -> list[mutations.Mutation]:
  return [mutations.Mutation(f, 'old', 'new', f'tests/{f}::test') for f in files]


def test_changed_are_those_of_files_that_differ_from_the_base(repository, tmp_path):
  choose = lambda base: [m.file for m in mutations.choose(named('a.py', 'b.py', 'c.py'), '', base)]
  assert choose('') == ['b.py']  # on main: what its last commit changed
  repository('checkout', '-qb', 'branch')
  repository('update-ref', 'refs/remotes/origin/main', 'HEAD')
  (tmp_path / 'c.py').write_text('c')
  repository('add', 'c.py')
  repository('commit', '-qm', 'c')
  assert choose('') == ['c.py']
  assert choose('HEAD~2') == ['b.py', 'c.py']
  (tmp_path / 'a.py').write_text('not committed')
  assert choose('') == ['a.py', 'c.py']
  with pytest.raises(SystemExit, match="a base with; got 'nothing'"):
    choose('nothing')


@pytest.mark.parametrize('shallow', [True, False])
def test_without_history_a_sample_is_tried(repository, tmp_path, monkeypatch, shallow, capsys):
  clone = tmp_path / 'clone'
  if shallow:
    repository('clone', '-q', '--depth=1', f'file://{tmp_path}', str(clone))
  else:
    clone.mkdir()
    monkeypatch.setenv('GIT_CEILING_DIRECTORIES', str(tmp_path))
  monkeypatch.setattr(mutations, 'ROOT', clone)
  many = named(*map(str, range(99)))
  chosen = mutations.choose(many, '', '')
  assert len(chosen) == mutations.SAMPLE and chosen == mutations.choose(many[::-1], '', '')
  assert 'No history' in capsys.readouterr().out


@pytest.fixture
def house(tmp_path, monkeypatch):
  """A repository of two tests, one of them slow."""
  monkeypatch.setattr(mutations, 'ROOT', tmp_path / 'house')
  (tmp_path / 'house').mkdir()
  (tmp_path / 'house/sums.py').write_text('A, B = 1, 2\n')
  (tmp_path / 'house/it_test.py').write_text(
    'import time\nimport pytest\nimport sums\n\ndef test_a():\n  assert sums.A == 1\n\n'
    'def test_slow():\n  time.sleep(600)\n\n'
    '@pytest.mark.full\ndef test_tier(pytestconfig):\n'
    '  assert pytestconfig.option.markexpr == "full" and sums.B == 2\n'
  )


def test_red_is_caught_and_green_survives(house, capsys):
  caught = mutations.Mutation('sums.py', 'A, B = 1', 'A, B = 3', 'it_test.py::test_a')
  green = mutations.Mutation('sums.py', '2', '4', 'it_test.py::test_a')
  gone = mutations.Mutation('sums.py', 'C = 1', '', 'it_test.py::test_a')
  assert mutations.run([caught, green, gone], 2, 5) == 2
  out = capsys.readouterr().out
  assert f'caught    {caught}' in out and f'SURVIVED  {green}' in out
  assert 'sums.py holds its text 0 times' in out and '1 of 3 caught\n' in out


def test_a_slow_test_is_compiled_as_the_slow_tier_is(house):
  """Compiled with little care some are red without an edit, and would catch any."""
  edit = mutations.Mutation('sums.py', 'A, B = 1', 'A, B = 3', 'it_test.py::test_tier')
  assert mutations.survives(edit).startswith('it_test.py::test_tier ended with 0')
  assert mutations.survives(edit._replace(old='2', new='4')) is None


def test_what_a_failing_test_has_started_ends_with_it(house, tmp_path):
  """Else the processes of run after run share the machine with those that come later."""
  (tmp_path / 'house/it_test.py').write_text(
    'import pathlib, subprocess, sums\n\ndef test_a():\n'
    '  child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)\n'
    f'  pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(child.pid))\n'
    '  assert sums.A == 1\n'
  )
  edit = mutations.Mutation('sums.py', 'A, B = 1', 'A, B = 3', 'it_test.py::test_a')
  assert mutations.survives(edit) is None
  stat = pathlib.Path('/proc', (tmp_path / 'pid').read_text(), 'stat')
  until = time.monotonic() + 30
  while stat.exists() and ') Z ' not in stat.read_text():
    assert time.monotonic() < until
    time.sleep(0.05)


def test_the_time_is_kept(house, capsys):
  slow = mutations.Mutation('sums.py', '2', '4', 'it_test.py::test_slow')
  start = time.monotonic()
  assert mutations.run([slow] * 4, 2, 0.05) == 0
  assert time.monotonic() - start < 30
  assert '0 of 0 caught, 4 left after 0.05 minutes' in capsys.readouterr().out


@pytest.mark.full
@pytest.mark.parametrize(
  'file',
  sorted(
    p for p in pathlib.Path(__file__).parent.rglob('*_test.py') if 'mutation(' in p.read_text()
  ),
  ids=lambda path: path.stem,
)
def test_every_mutation_of_a_file_is_caught(file):
  assert not mutations.run(list(mutations.noted_in(file)), 2, 60)
