"""Names of classes, features and types, as `siafu import` and `siafu info` list them."""

from siafu.cli.info import named


def test_a_name_with_a_comma_is_in_quotes_so_that_it_is_not_two() -> None:
    assert named(("spice", "tea, green")) == " (spice, 'tea, green')"
