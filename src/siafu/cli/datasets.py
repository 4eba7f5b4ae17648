def datasets() -> None:
    raise NotImplementedError
