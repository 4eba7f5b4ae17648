def doctor() -> None:
    raise NotImplementedError
