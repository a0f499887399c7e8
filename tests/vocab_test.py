"""`python -m bertjax.vocab`: the files it writes, that they are repeatable, and what it refuses."""

import collections
import functools
import os
import random
import re
import subprocess
import sys
import unicodedata

import forks
import numpy as np
import pytest
import tokenizers
from absl import flags
from absl.testing import flagsaver
from mutation import mutation
from no_room import no_room
from processes import ROOT
from slow_imports import corpora, registered, seqio, transformers

from bertjax.errors import UserError
from bertjax.vocab import __main__ as vocab
from bertjax.vocab.train import TRAINERS, extend_wordpiece
from bertjax.vocab.vocabulary import load_vocabulary

SYLLABLES = 'ba be bi bo da de di do Ka ke ki ko la le li lo é 漢'.split()


def sentences(count=2000, seed=0):
  """Invented words with the frequencies of a language, so that ties abound."""
  draw = random.Random(seed)
  words = [''.join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(3000)]
  weights = [1 / rank for rank in range(1, 3001)]
  return [' '.join(draw.choices(words, weights, k=8)) + '.' for _ in range(count)]


def run(output, function=vocab.main, **given):
  """Calls the command, or a part of it, with these flags; returns its output's directory."""
  with flagsaver.flagsaver(output=str(output), **given):
    flags.FLAGS.mark_as_parsed()
    function()
  return output


def contents(path):
  return {p.name: p.read_bytes() for p in path.iterdir()}


@pytest.mark.parametrize('lowercase', [True, False])
@pytest.mark.parametrize('kind', ['wordpiece', 'bpe', 'unigram'])
def test_vocabulary_reads_back_and_fits_its_text(tmp_path, kind, lowercase):
  TRAINERS[kind](sentences(), 400, lowercase, tmp_path)
  vocabulary = load_vocabulary(tmp_path)
  assert vocabulary.size == 400 and vocabulary.lowercase == lowercase
  eod = [vocabulary.special['eod']] if kind == 'unigram' else []  # XLNet needs it
  numbers = sorted(set(vocabulary.special.values()) - {*eod})
  assert eod in ([], [5]) and numbers in ([0, 1, 2, 3, 4], [0, 1, 2, 3, 399])
  assert vocabulary.special['pad'] == (1 if kind == 'bpe' else 0)
  assert 0 < vocabulary.word_starts.mean() < 1
  new = sentences(50, seed=1)
  token_n, _ = vocabulary.encode_flat(new)
  assert (token_n == vocabulary.special['unk']).mean() < 0.001
  text = vocabulary.decode(vocabulary.encode_batch(new)[0])
  lower = new[0].lower() if lowercase else new[0]
  if kind != 'wordpiece':  # which sets marks and Chinese characters apart, and strips accents
    assert text == lower
  if kind == 'unigram':
    return
  theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
  got = theirs(new, add_special_tokens=False)['input_ids']
  assert [ids.tolist() for ids in vocabulary.encode_batch(new)] == got
  ids, special = theirs('ba')['input_ids'], vocabulary.special
  assert (ids[0], ids[-1]) == (special['cls'], special['sep'])
  assert theirs.mask_token_id == special['mask'] and theirs.pad_token_id == special['pad']
  (tmp_path / 'tokenizer.json').unlink()  # the plain files beside it say the same
  assert load_vocabulary(tmp_path).pieces == vocabulary.pieces


@mutation('len(ids) - 1 + (unknown in ids)', '1')
@mutation(' + (unknown in ids)', '')
def test_words_of_another_text_are_added_behind_the_pieces(tmp_path):
  """The ids of what was there stay, and each word that is added is one that was cut before."""
  before = tmp_path / 'before'
  before.mkdir()
  TRAINERS['wordpiece'](sentences(), 400, True, before)
  base, text = load_vocabulary(before), ['kodilo bobe, ba kodilo bo.', 'Kodilo.', 'ba ☀ ☀ ba']
  for name in ('tokenizer.json', 'tokenizer_config.json'):  # the file alone says as much
    extend_wordpiece(text, 402, base, tmp_path)
    more = load_vocabulary(tmp_path)
    assert [*more.pieces] == [*base.pieces, 'kodilo', '☀']
    assert (more.lowercase, more.accents) == (True, False)
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    got = theirs(text, add_special_tokens=False)['input_ids']
    assert [ids.tolist() for ids in more.encode_batch(text)] == got and got[1][0] == 400
    (before / name).unlink()
    base = load_vocabulary(before)


@mutation("'\\n'.join(pieces) + ", "'\\n'.join(vocabulary) + ")
@mutation(' and len(word) <= _LONGEST', '')
@mutation('or lacks or', 'or')
def test_both_files_of_an_extension_keep_blank_and_doubled_lines(tmp_path):
  """And a word so long that it is unknown is no piece."""
  lines = ['[PAD]', '[UNK]', '[CLS]', '', '[SEP]', 'a', '', '##b', 'a', '[MASK]', 'b', '##a']
  (tmp_path / 'vocab.txt').write_text('\n'.join(lines) + '\n')
  extend_wordpiece(['abab ' + 'ab' * 51] * 2, 20, load_vocabulary(tmp_path), tmp_path)
  kept = [*lines[:5], '', *lines[6:], 'abab']
  for name in ('tokenizer.json', 'vocab.txt'):
    assert [*load_vocabulary(tmp_path / name).pieces] == kept
  (tmp_path / 'vocab.txt').write_text('\n'.join(kept).replace('[MASK]', ''))
  for name in ('tokenizer.json', 'tokenizer_config.json'):
    (tmp_path / name).unlink()
  with pytest.raises(UserError, match=r'of 13 pieces, .* \(it lacks \[MASK\]\)'):
    run(tmp_path / 'new', size=300, extend=str(tmp_path), input='gone')


@pytest.mark.parametrize(
  'given, said',
  [
    (dict(size=400), 'is wordpiece of 400 pieces, --size=400: expected .* of fewer'),
    (dict(type='bpe'), 'leave out --type, --lowercase and --keep_accents'),
  ],
)
def test_what_cannot_be_extended_is_refused_before_the_text_is_read(tmp_path, given, said):
  TRAINERS['wordpiece'](sentences(), 400, True, tmp_path)
  with pytest.raises(UserError, match=said):
    run(tmp_path / 'new', **dict(size=401, extend=str(tmp_path), input='gone') | given)


def test_equal_seeds_give_equal_files(tmp_path):
  """In processes of their own, since hash tables differ from one to the next."""
  (tmp_path / 'a.txt').write_text('\n'.join(sentences()))
  code = (
    'import pathlib, sys\n'
    'from bertjax.vocab.train import TRAINERS\n'
    'text = pathlib.Path("a.txt").read_text().splitlines()\n'
    'for kind in TRAINERS:\n'
    '  path = pathlib.Path(sys.argv[1], kind)\n'
    '  path.mkdir(parents=True)\n'
    '  TRAINERS[kind](text, 400, False, path)\n'
  )
  for name in ('one', 'two'):
    command = [sys.executable, '-c', code, name]
    subprocess.run(command, check=True, cwd=tmp_path, env=os.environ | dict(PYTHONPATH=str(ROOT)))
  for kind in TRAINERS:
    assert contents(tmp_path / 'one' / kind) == contents(tmp_path / 'two' / kind), kind


def test_files_are_what_the_tokenizers_themselves_write(tmp_path):
  for kind in ('wordpiece', 'bpe', 'words'):
    ours, theirs = tmp_path / kind, tmp_path / f'{kind}-theirs'
    ours.mkdir()
    theirs.mkdir()
    TRAINERS[kind]([*sentences(), 'a "b" \\c \u2028 \x7f 漢'], 400, False, ours)
    tokenizer = tokenizers.Tokenizer.from_file(str(ours / 'tokenizer.json'))
    tokenizer.save(str(theirs / 'tokenizer.json'))
    if kind == 'bpe':
      tokenizer.model.save(str(theirs))
    found = contents(ours)
    assert {name: found[name] for name in contents(theirs)} == contents(theirs)


@mutation("with writing('the vocabulary', directory):", 'if True:')
def test_a_full_disk_names_the_vocabulary(tmp_path):
  with pytest.raises(OSError, match=f"while writing the vocabulary: '{tmp_path}"), no_room():
    TRAINERS['wordpiece'](sentences(), 400, True, tmp_path)


def test_sample_is_uniform_bounded_and_repeatable():
  numbers = [str(i) for i in range(20_000)]
  sample = vocab.draw(iter(numbers), 1000, seed=3)
  assert sample == vocab.draw(iter(numbers), 1000, seed=3) != vocab.draw(iter(numbers), 1000, 4)
  assert sample.seen == 20_000 and len(sample.train) == 1000 and len(sample.held_out) == 400
  assert not set(sample.train) & set(sample.held_out)
  quarters = collections.Counter(int(text) // 5000 for text in sample.train)
  assert all(abs(count - 250) < 60 for count in quarters.values())


@mutation('if corpus.members > 1 and not', 'if corpus.members > 9 and not')
def test_a_mixture_is_sampled_at_its_rates():
  """The small language has 1/21 of the documents, and is drawn 1 / (1 + 20**.7) of the time."""
  if 'smooth' not in seqio.MixtureRegistry.names():
    for name, documents in (('large', 2000), ('little', 100)):
      text = [name.encode()] * documents
      seqio.TaskRegistry.add_provider(
        name, corpora.stream_task(name, functools.partial(list, text))
      )
    sizes = dict(large=2000, little=100)
    rate = lambda task: sizes[task.name] ** registered.SMOOTHING
    seqio.MixtureRegistry.add('smooth', ['large', 'little'], default_rate=rate)
  given = dict(module='bertjax.examples.seqio_tasks.registered', sample=2100)
  read = collections.Counter()
  count = lambda: read.update(vocab._sentences())
  run('', count, input='smooth', type='wordpiece', size=300, **given)
  assert sum(read.values()) == 2100
  assert abs(read['little'] / 2100 - 1 / (1 + 20**0.7)) < 0.02


def test_command_line(tmp_path):
  (tmp_path / 'a.txt').write_text('\n'.join(sentences()))
  command = ['bertjax.vocab', f'--input={tmp_path}/a.txt', '--size=400']
  command += ['--type=wordpiece', '--lowercase', '--sample=1500', f'--output={tmp_path}/v']
  done = forks.run(*command, cwd=ROOT)
  assert done.returncode == 0, done.stderr
  assert 'training on 1,500 of 2,000 sentences' in done.stdout
  assert 'tokens per word' in done.stdout and '40 sentences held out' in done.stdout
  assert contents(tmp_path / 'v').keys() == {'tokenizer.json', 'tokenizer_config.json', 'vocab.txt'}
  taken = 'exists and is no empty directory: remove it, or name another --output'
  refused = {
    f'{tmp_path}/v': taken,
    '/dev/null/v': 'a file, or a link that leads nowhere, is there',
  }
  for output, said in refused.items():
    again = forks.run(*command, f'--output={output}', cwd=ROOT)
    assert again.returncode and said in again.stderr
    assert 'training on' not in again.stdout


@mutation('dict(keep_accents=_KEEP_ACCENTS.value)', 'dict(keep_accents=False)')
@mutation("bool(settings.get('do_lower_case')) if", 'False if', case='bpe')
@pytest.mark.parametrize('kind', ['wordpiece', 'bpe'])
def test_lowercased_text_may_keep_its_accents(tmp_path, capsys, kind):
  """WordPiece strips them unless told otherwise; the other kinds never do."""
  (tmp_path / 'a.txt').write_text('\n'.join(['ÄPFEL und Öl für Åsa', 'ที่ น้ำ हिन्दी में'] * 200))
  given = dict(input=f'{tmp_path}/a.txt', type=kind, size=330, lowercase=True, split='lines')
  text = 'äpfel öl น้ำ हिन्दी'
  parts = unicodedata.normalize('NFD', text)
  plain = ''.join(c for c in parts if unicodedata.category(c) != 'Mn')
  for keep in (False, True):
    kept = keep or kind != 'wordpiece'
    output = run(tmp_path / str(keep), keep_accents=keep, **given)
    said = re.sub('[ │]+', ' ', capsys.readouterr().out)
    assert f' accents {"kept" if kept else "stripped"} ' in said
    ours = load_vocabulary(output)
    assert (ours.lowercase, ours.accents) == (True, kept)
    ids = ours.encode_batch([text.upper()])[0].tolist()
    assert ours.decode(ids) == (text if kept else plain)
    theirs = transformers.AutoTokenizer.from_pretrained(str(output))
    assert theirs(text.upper(), add_special_tokens=False)['input_ids'] == ids
    (output / 'tokenizer.json').unlink()  # the files beside it say the same
    assert load_vocabulary(output).encode_batch([text.upper()])[0].tolist() == ids


@mutation('itertools.chain(first, sentences) if first else []', 'first')
def test_words_are_counted_in_all_of_the_text(tmp_path, capsys):
  """However small the sample is, and however long a line."""
  words = [f'w{i}' for i in range(20_000)]
  (tmp_path / 'a.txt').write_text(' '.join(words[:8000]) + '\n\n' + '\n'.join(words[8000:]) + '\n')
  given = dict(input=f'{tmp_path}/a.txt', type='words', size=30_000, sample=1, split='verbatim')
  run(tmp_path / 'v', **given)
  assert set(load_vocabulary(tmp_path / 'v').pieces) == {*words, '<eos>', '<unk>', '<pad>'}
  assert '10,000 first sentences' in capsys.readouterr().out


@mutation('letters > _LONG_WORDS * len(words)', 'False')
@mutation('4 * min(covering, len(common))', '2 * min(covering, len(common))')
@pytest.mark.parametrize('language', ['zh', 'th'])
def test_text_without_spaces_is_said_by_characters(tmp_path, capsys, language):
  """Of Chinese the size that is named keeps the characters; of Thai no size keeps long words."""
  draw = np.random.default_rng(0)
  letters = [chr(0x4E00 + n) for n in range(900)] if language == 'zh' else [*'กขคงจชซญดตถทนบปผพ']
  share = 1 / np.arange(1, len(letters) + 1)
  lines = [''.join(draw.choice(letters, 120, p=share / share.sum())) for _ in range(400)]
  (tmp_path / 'a.txt').write_text('\n'.join(lines))

  def said(size):
    run(tmp_path / str(size), input=f'{tmp_path}/a.txt', type='wordpiece', size=size)
    return capsys.readouterr().out

  first = said(400)
  assert 'tokens per character' in first and 'tokens per word' not in first
  if language == 'th':
    assert '100.0% of the characters are unknown' in first and '100 characters are one' in first
    return
  found = re.search(r'the text has 900 characters, --size=(\d+) keeps 99.95% of it', first)
  assert found and 'of the characters are unknown' not in said(int(found[1]))
  assert 'of the characters are unknown' in said(int(found[1]) * 2 // 3)


@mutation('max(_ALPHABET, covering)', '_ALPHABET')
def test_a_script_of_many_characters_has_as_many_pieces(tmp_path):
  """Chinese: 3,000 characters, each a word of its own, the n-th as often as 1 / n."""
  draw = np.random.default_rng(0)
  share = 1 / np.arange(1, 3001)
  number_n = draw.choice(3000, 60_000, p=share / share.sum())
  sentences = [''.join(chr(0x4E00 + n) for n in part) for part in np.split(number_n, 3000)]
  unknown = {}
  for size in (4000, 20_000):
    (tmp_path / str(size)).mkdir()
    TRAINERS['wordpiece'](sentences, size, True, tmp_path / str(size))
    vocabulary = load_vocabulary(tmp_path / str(size))
    ids = np.concatenate(vocabulary.encode_batch(sentences[:500]))
    unknown[size] = np.mean(ids == vocabulary.special['unk'])
  assert unknown[4000] > 0.1 and unknown[20_000] < 0.001
