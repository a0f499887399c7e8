"""The pages lead where they say."""

import re

import pytest
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


@mutation(
  '`bertjax/examples/noise/albert_ngrams.py`',
  '`bertjax/examples/noise/ngrams.py`',
  file='CONTRIBUTING.md',
)
@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_is_there(page):
  named = set(
    re.findall(r'`((?:bertjax|configs|tests|launch)/[\w/]+\.(?:py|json|sh))', page.read_text())
  )
  missing = sorted(name for name in named if not (ROOT / name).exists())
  assert not missing
