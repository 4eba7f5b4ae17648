def generate() -> None:
    raise NotImplementedError
