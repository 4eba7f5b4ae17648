def import_() -> None:
    raise NotImplementedError
