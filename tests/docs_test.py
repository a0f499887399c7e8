"""The pages lead where they say, and commands that are written or printed have their flags."""

import ast
import re

import pytest
import typist
from mutation import mutation
from processes import ROOT

PAGES = [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *sorted((ROOT / 'docs').glob('*.md'))]
LINK = re.compile(r'\[[^]]*\]\(([^)\s]+)\)')
CODE = re.compile(r'```.*?```|`[^`]*`', re.DOTALL)


def anchors(page):
  """The names that GitHub gives to the headings of a page."""
  headings = re.findall(r'^#+ (.+)$', page.read_text(), re.MULTILINE)
  return {re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-') for heading in headings}


@mutation('(docs/running.md#keys)', '(docs/running.md#key)', file='README.md')
@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_its_heading(page):
  for link in LINK.findall(CODE.sub('', page.read_text())):
    if link.startswith(('http:', 'https:')):
      continue
    name, _, heading = link.partition('#')
    found = page.parent / name if name else page
    assert found.exists(), link
    assert not heading or heading in anchors(found), link


def test_every_page_is_found_from_the_first():
  said = (ROOT / 'README.md').read_text() + (ROOT / 'docs' / 'running.md').read_text()
  unknown = [page.name for page in PAGES[1:] if page.name not in said]
  assert not unknown


@mutation('/examples/noise/albert_ngrams.py`', '/examples/noise/ngrams.py`', file='CONTRIBUTING.md')
@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_is_there(page):
  named = set(
    re.findall(r'`((?:bertjax|configs|tests|launch)/[\w/]+\.(?:py|json|sh))', page.read_text())
  )
  missing = sorted(name for name in named if not (ROOT / name).exists())
  assert not missing


LAUNCH = sorted(path for path in (ROOT / 'launch').rglob('*') if path.suffix in ('.sh', '.yaml'))
SOURCES = sorted((ROOT / 'bertjax').rglob('*.py')) + sorted((ROOT / 'configs').rglob('*.py'))
# A file that the page writes, what a shell fills in, any command and any bench.
OF_THE_PAGE = ('--config=mine/', '--config=$', 'bertjax.X', 'bertjax.COMMAND', 'NAME')
LACKING = re.compile(r'SystemExit: [\w.]+: expected --')  # that of a command named in a sentence


def strings(source):
  """The strings of a module; what an f-string fills in is X."""
  nodes = [*ast.walk(ast.parse(source))]
  filled = [node.values for node in nodes if isinstance(node, ast.JoinedStr)]
  parts = {id(part) for values in filled for part in values}
  for values in filled:
    yield ''.join(x.value if isinstance(x, ast.Constant) else 'X' for x in values)
  for node in nodes:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
      yield node.value


def texts(path):
  return strings(path.read_text()) if path.suffix == '.py' else [path.read_text()]


def wrong(found):
  """What is wrong with the (place, text) found, in lines: place, command and what it says."""
  cases = {}
  for place, text in found:
    for module, words, whole in typist.commands(text):
      if '--evaluate' in words:  # with the config of its workdir
        own = place.is_relative_to(ROOT / 'configs')
        words.insert(0, f'--config={place.relative_to(ROOT)}' if own else typist.BERT)
      if '.' in module and not any(word.startswith(OF_THE_PAGE) for word in (module, *words)):
        cases.setdefault((module, *words), (place, whole))
  assert cases
  told = typist.said([(module, words) for module, *words in cases])
  return '\n'.join(
    f'{place}: {" ".join(case)}\n  {said}'
    for (case, (place, whole)), said in zip(cases.items(), told, strict=True)
    if said and (whole or not LACKING.match(said))
  )


@mutation('vectors.npy --pool=mean', 'vectors.npy --pooling=mean', file='README.md')
@mutation('--config.minutes=10', '--config.minute=10', file='README.md')
@mutation('--for=configs/roberta.py', '--of=configs/roberta.py', file='README.md')
def test_readme():
  assert wrong([(ROOT / 'README.md', (ROOT / 'README.md').read_text())]) == ''


@pytest.mark.full
@mutation('--config.temperature=2', '--config.temperatur=2', file='configs/finetune/tasks.py')
@mutation('--predictions=predictions.json', '--prediction=p.json', file='docs/finetune.md')
@mutation("--text='Once' --temp", "--prompt='Once' --temp", file='bertjax/train/report.py')
def test_every_page_config_and_message():
  places = [*PAGES, *LAUNCH, *SOURCES]
  assert wrong((path, text) for path in places for text in texts(path)) == ''


def test_what_is_to_be_installed_is_no_package_of_ours_and_its_files_are_there():
  """Names of an index may be anybody's; ours is on none."""
  found = set()
  for path in [*PAGES, *LAUNCH, *SOURCES]:
    for text in texts(path):
      found.update(re.findall(r"pip install ((?:-\w )?[^\s`,;)(']+)", text))
  assert len(found) > 10
  files = [name.removeprefix('-r ') for name in found if name.startswith('-r ')]
  assert all((ROOT / name).exists() for name in files), files
  assert not [name for name in found if re.match(r'[\'"]?bertjax', name)]
