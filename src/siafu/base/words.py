"""Words for messages."""


def counted(number: int, noun: str) -> str:
    """Such as '1 feature' or '2,000 features'."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
