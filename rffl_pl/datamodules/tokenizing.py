"""Sentences to token ids.

Words are torchtext's ``basic_english``: lower case, quotation marks dropped, punctuation apart; of Unicode's ways to
write a character all are one (NFC). Ids are by descending frequency in the training text, then alphabetically, after 0
for padding and 1 for unknown words. What a text calls ``<pad>`` or ``<unk>`` is a word as any other, ``< pad >``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

from rffl_pl.errors import UserError, words_of

Encoder = Callable[[Sequence[str]], list[list[int]]]
"""From sentences to the token ids of each, at least one."""

_SPECIAL = ["<pad>", "<unk>"]
UNKNOWN = 1
_AT_ONCE = 1024
"""Sentences that are encoded together: beside ids an encoding has words, offsets and masks that nobody asks for."""
_BASIC_ENGLISH = [
    (r"'", " '  "), (r'"', ""), (r"\.", " . "), (r"<br />", " "), (r",", " , "), (r"\(", " ( "), (r"\)", " ) "),
    (r"!", " ! "), (r"\?", " ? "), (r";", " "), (r":", " "), (r"\s+", " "),
]  # fmt: skip


def with_tokenizers(training: Sequence[str], size: int) -> Encoder:
    """The encoder of Hugging Face's ``tokenizers``, with the ``size`` - 2 most frequent words of the training text."""
    from tokenizers import Regex, Tokenizer  # images need none of it
    from tokenizers.models import WordLevel
    from tokenizers.normalizers import Lowercase, Replace
    from tokenizers.normalizers import Sequence as Normalizers
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.trainers import WordLevelTrainer

    tokenizer = Tokenizer(WordLevel(unk_token=_SPECIAL[UNKNOWN]))
    tokenizer.normalizer = Normalizers([Lowercase(), *(Replace(Regex(p), by) for p, by in _BASIC_ENGLISH)])
    tokenizer.pre_tokenizer = WhitespaceSplit()
    trainer = WordLevelTrainer(vocab_size=size, min_frequency=1, special_tokens=_SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(map(_plain, training), trainer)

    def encode(sentences: Sequence[str]) -> list[list[int]]:
        found = []
        for start in range(0, len(sentences), _AT_ONCE):
            some = [*map(_plain, sentences[start : start + _AT_ONCE])]
            found += [encoding.ids or [UNKNOWN] for encoding in tokenizer.encode_batch(some)]
        return found

    return encode


def with_torchtext(training: Sequence[str], size: int) -> Encoder:
    """The same ids from torchtext, whose last release, 0.18, works beside torch 2.3 alone.

    Raises:
        UserError: If torchtext cannot be imported.
    """
    try:
        import torchtext

        torchtext.disable_torchtext_deprecation_warning()
        from torchtext.data.utils import get_tokenizer
        from torchtext.vocab import build_vocab_from_iterator
    except (ImportError, OSError) as error:
        raise UserError(
            "Expected torchtext for --data.tokenizer torchtext, but it cannot be imported "
            f"({words_of(error)}); install it with pip install -c constraints-torchtext.txt "
            "-e '.[torchtext]', or leave the option out: the default gives the same ids."
        ) from error
    words = get_tokenizer("basic_english")
    split = (words(_plain(sentence)) for sentence in training)
    vocabulary = build_vocab_from_iterator(split, specials=_SPECIAL, max_tokens=size)
    vocabulary.set_default_index(UNKNOWN)

    def encode(sentences: Sequence[str]) -> list[list[int]]:
        return [vocabulary(words(_plain(sentence))) or [UNKNOWN] for sentence in sentences]

    return encode


def _plain(sentence: str) -> str:
    """A sentence in which nothing has the name of a special token, which would be taken for one."""
    sentence = unicodedata.normalize("NFC", sentence)
    if "<" not in sentence:
        return sentence
    return re.sub("<(pad|unk)>", r"< \1 >", sentence.replace('"', ""), flags=re.IGNORECASE)
