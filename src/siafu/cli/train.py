def train() -> None:
    raise NotImplementedError
