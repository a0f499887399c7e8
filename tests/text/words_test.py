"""Plain text as the words that taggers know."""

import pytest
from mutation import mutation

from bertjax.text import words

# Words that blanks divide here, and the text that they are cut from.
TEXTS = {
  "Berlin 's 3.5 % ( U.S. ) , 我 住 在 北 京 。": "Berlin's 3.5% (U.S.), 我住在北京。",
  'hello , world 3,5 a : b 人 々 は': 'hello,world 3,5 a:b 人々は',
  "I can't say : 3,000.50 or 12:30 ?": "I can't say: 3,000.50 or 12:30?",
  'see https://a.b/c?d=1&e=2 ) .': 'see https://a.b/c?d=1&e=2).',
  'mail a.b@c.de , www.x.org/y': 'mail a.b@c.de, www.x.org/y',
  'cafe\u0301s नमस्ते สวัสดี ( ไทย )': 'cafe\u0301s नमस्ते สวัสดี (ไทย)',
  'great 😀 😀 👨\u200d👩\u200d👧 🇩🇪 🇫🇷 👍🏽 ok': 'great😀😀👨\u200d👩\u200d👧🇩🇪🇫🇷👍🏽ok',
  '“ Berlin , ” he said — well-known … a -- b ...': '“Berlin,” he said—well-known… a--b...',
  'don’t Müller ’s e.g. , it is 3.5 .': 'don’t Müller’s e.g., it is 3.5.',
  '東 京 タワーに 行 く 中\ufe00 文 iPhone15 在': '東京タワーに行く 中\ufe00文iPhone15在',
  '\x7f \u0301': '\x7f \u0301',
  '': ' \t\u3000',
}


@mutation("kind[0] == 'M' or kind == 'Cf'", "kind == 'Cf'")
@mutation("    return '中'", "    return 'x'")
@mutation("    return '¶'", "    return '§'")
@mutation('{{2,}}', '{{9,}}')
@pytest.mark.parametrize('said', TEXTS)
def test_words_are_cut_as_taggers_know_them(said):
  found = words.cut(TEXTS[said])
  assert found == said.split()
  assert ''.join(found) == ''.join(TEXTS[said].split())  # nothing is lost
  assert words.cut(f'\ufeff{TEXTS[said]}') == found  # but for the mark of an order of bytes
