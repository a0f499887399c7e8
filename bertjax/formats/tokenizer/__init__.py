"""Tokenizers to transformers: a directory from which AutoTokenizer gives our ids.

transformers 5 builds the tokenizers of the classes that it knows anew from their pieces, in some
cases with other ids and no error. `PreTrainedTokenizerFast` is the class of which versions 4 and 5
take tokenizer.json as it stands, so that is what an export names; the other files of the directory
(vocab.txt, spiece.model, ...) are for programs that know no tokenizer.json. XLM's words are found
by Moses, outside of any tokenizer.json, so it is exported as `XLMTokenizer`.

Text that spells a special token is text to us and the token to transformers, whose pipelines fill
masks that way; around such a token the parts are encoded each on its own. A newline within a text
ends a line there, in vocabularies of characters and bytes; to ours it is unknown.
"""

from bertjax.formats.tokenizer import layouts as layouts
from bertjax.formats.tokenizer.compare import FIXED_TEXTS as FIXED_TEXTS
from bertjax.formats.tokenizer.compare import differences as differences
from bertjax.formats.tokenizer.export import write as write
