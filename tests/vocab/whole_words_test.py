"""Words, characters and bytes: ids by frequency, ends of lines, and the stream of them."""

import collections
import pathlib

import pytest
from mutation import mutation
from tokenizers import Tokenizer, pre_tokenizers

from bertjax.store.encode import Options, encode
from bertjax.vocab.train import TRAINERS
from bertjax.vocab.vocabulary import load_vocabulary

LINES = ['the cat saw the dog', 'The dog saw a <unk>', 'a  cat, é 漢']


def made(directory: pathlib.Path, kind: str, size: int = 300, lowercase: bool = False, lines=LINES):
  directory.mkdir(exist_ok=True)
  TRAINERS[kind](lines, size, lowercase, directory)
  return load_vocabulary(directory)


@mutation('key=lambda piece: (-counts[piece], piece)', 'key=lambda piece: piece')
def test_words_are_numbered_by_frequency_after_the_end_of_a_line_and_unknown(tmp_path):
  found = made(tmp_path, 'words')
  expected = ['<eos>', '<unk>', 'a', 'dog', 'saw', 'the', 'The', 'cat', 'cat,', 'é', '漢', '<pad>']
  assert list(found.pieces) == expected
  assert found.type == 'words' and found.word_starts.all()
  assert found.special == dict(cls=None, sep=None, pad=11, mask=None, unk=1, eos=0)


@mutation('marks = (_PAD, END[kind], *[_BEGIN] * (kind == MARKED))', 'marks = (_PAD, END[kind])')
def test_marked_words_begin_with_three_marks_that_no_text_spells(tmp_path):
  found = made(tmp_path, 'marked_words', lines=[*LINES, '<S> the </S>'])
  assert list(found.pieces[:4]) == ['</S>', '<S>', '<unk>', 'the'] and found.pieces[-1] == '<pad>'
  assert found.type == 'marked_words'
  last = found.size - 1
  assert found.special == dict(cls=1, sep=0, pad=last, mask=None, unk=2, eos=0)
  (ids,) = found.encode_batch(['<S> the zebra </S>'])
  assert ids.tolist() == [2, 3, 2, 2, 0]


@mutation('    counts[end] += 1\n', '')
def test_characters_are_numbered_by_frequency_with_spaces_and_newlines(tmp_path):
  found = made(tmp_path, 'characters')
  counts = collections.Counter(''.join(line + '\n' for line in LINES))
  rank = [counts[piece] for piece in found.pieces]
  assert found.pieces[0] == ' ' and list(found.pieces[-2:]) == ['<unk>', '<pad>']
  assert set(counts) == set(found.pieces[:-2]) and rank == sorted(rank, reverse=True)
  assert found.type == 'characters' and found.special['eos'] == found.pieces.index('\n')


@mutation("line.encode().decode('latin-1')", "line.encode('utf-16-le').decode('latin-1')")
@mutation('unk) for part in cut(text)), end]', 'unk) for part in cut(text))]')
def test_bytes_are_those_of_utf8_in_gpt2s_letters(tmp_path):
  found = made(tmp_path, 'bytes')
  counts = collections.Counter(b''.join(line.encode() + b'\n' for line in LINES))
  letters = {letter: byte for letter, byte in gpt2_letters()}
  assert {letters[piece]: counts[letters[piece]] for piece in found.pieces[:-2]} == counts
  rank = [counts[letters[piece]] for piece in found.pieces[:-2]]
  assert rank == sorted(rank, reverse=True)
  assert found.type == 'bytes' and letters[found.pieces[found.special['eos']]] == ord('\n')
  assert found.decode(found.encode_batch(['漢'])[0]) == '漢\n'


def gpt2_letters():
  """Which byte each letter of GPT-2's alphabet stands for, as the library has it."""
  cut = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
  for character in map(chr, range(2**11)):  # whose UTF-8 has all bytes but some from 0xe0 on
    ((found, _),) = cut.pre_tokenize_str(character)
    yield from zip(found, character.encode(), strict=True)
  ((found, _),) = cut.pre_tokenize_str('漢')
  yield from zip(found, '漢'.encode(), strict=True)


@pytest.mark.parametrize('lowercase', [True, False])
@pytest.mark.parametrize('kind', ['words', 'characters', 'bytes'])
def test_lines_come_back_each_with_its_end(tmp_path, kind, lowercase):
  found = made(tmp_path, kind, lowercase=lowercase)
  assert found.lowercase == lowercase
  lines = ['the cat saw a <unk>', 'The dog'] if kind == 'words' else [*LINES, '<unk>']
  token_n, length_n = found.encode_flat(lines)
  text = ''.join(line + '\n' for line in lines)
  assert found.decode(token_n) == (text.lower() if lowercase else text)
  size = dict(words=lambda s: len(s.split()), characters=len, bytes=lambda s: len(s.encode()))
  sizes = [size[kind](line) for line in lines]
  assert length_n.tolist() == [size + 1 for size in sizes]
  end = found.special['eos']
  assert [ids.tolist() for ids in found.encode_batch(['', '\n'])] == [[], [end]]
  same = zip(found.encode_batch(lines), found.encode_batch([f'{s}\n' for s in lines]), strict=True)
  assert all((a == b).all() for a, b in same)
  # The Rust tokenizer of the same file says the same, but for the ends of lines.
  theirs = Tokenizer.from_file(str(tmp_path / 'tokenizer.json'))
  ids = [theirs.encode(line, add_special_tokens=False).ids for line in lines]
  assert [[*line, end] for line in ids] == [x.tolist() for x in found.encode_batch(lines)]


@pytest.mark.parametrize('kind', ['words', 'characters', 'bytes'])
def test_a_document_becomes_lines_with_their_ends(tmp_path, kind):
  found = made(tmp_path, kind)
  options = Options(vocab='', lowercase=None, split='lines', errors='strict')
  document = '\n\n'.join(LINES[:2]).encode()  # an empty line is none
  encoded = encode([document], found, options)
  assert found.decode(encoded.token_n) == 'the cat saw the dog\nThe dog saw a <unk>\n'
  assert encoded.size_D.tolist() == [2]
