def predict() -> None:
    raise NotImplementedError
