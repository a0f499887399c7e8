"""T5's vocabulary: trained here, read by its own names, the same to transformers."""

import published
import pytest
from mutation import mutation

from bertjax.formats import tokenizer
from bertjax.vocab import train
from bertjax.vocab.vocabulary import load_vocabulary

WORDS = [a + b for a in ('ka', 'tor', 'mi', 'sel', 'un') for b in ('den', 'la', 'pri', 'go', '')]
SENTENCES = [' '.join(WORDS[i % 25] for i in (n, 3 * n + 1, 7 * n, n * n)) for n in range(200)]


@pytest.fixture(scope='module')
def directory(tmp_path_factory):
  found = tmp_path_factory.mktemp('t5')
  train.train_t5(SENTENCES, 128, False, found)
  return found


def test_sentinels_come_last_and_pad_first(directory, tmp_path):
  vocabulary = load_vocabulary(str(directory))
  assert vocabulary.size == 128
  assert {k: vocabulary.special[k] for k in ('pad', 'sep', 'unk')} == dict(pad=0, sep=1, unk=2)
  assert vocabulary.special['cls'] is None and vocabulary.special['mask'] is None
  assert vocabulary.sentinels == list(range(127, 27, -1))
  assert vocabulary.pieces[127].lstrip('▁') == '<extra_id_0>'
  assert vocabulary.meta['sentinels'] == vocabulary.sentinels
  vocabulary.save(tmp_path)
  again = load_vocabulary(str(tmp_path))
  assert again.sentinels == vocabulary.sentinels and again.meta == vocabulary.meta


@mutation('own | bare, bare)', 'own)', file='bertjax/vocab/vocabulary.py')
@mutation(
  '  control |= {p for i',
  '  control or {p for i',
  file='bertjax/formats/tokenizer/sentencepiece_json.py',
)
def test_transformers_has_the_same_ids_and_a_sentinel_leaves_no_space(directory, tmp_path):
  import transformers

  ours = load_vocabulary(str(directory))
  tokenizer.write(ours, tmp_path, 't5', 512)
  for place in (directory, tmp_path):
    theirs = transformers.AutoTokenizer.from_pretrained(place)
    for text in ('kaden torla migo', ' kaden  <extra_id_0> unpri<extra_id_1>', '<extra_id_0>'):
      (own,) = ours.encode_batch([text])
      assert theirs(text).input_ids == [*own, ours.special['sep']]
      assert [load_vocabulary(str(place)).encode_batch([text])[0].tolist()] == [own.tolist()]
      assert '▁' not in [ours.pieces[i] for i in own]
    assert theirs.convert_tokens_to_ids('<extra_id_0>') == ours.sentinels[0]
    assert len(theirs) == ours.size


def test_published_sentinels_are_found_by_their_names(shared):
  found = published.vocabulary(shared, 't5').sentinels
  assert found == list(range(32100, 32000, -1))
