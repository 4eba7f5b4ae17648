def evaluate() -> None:
    raise NotImplementedError
