"""Keywords that a function does not have."""

import pytest

import siafu
from siafu.base.errors import BadInput


def test_embed_refuses_a_keyword_with_the_nearest_one() -> None:
    with pytest.raises(BadInput, match="there is no keyword epoch: did you mean epochs"):
        siafu.embed("demo", epoch=1)
