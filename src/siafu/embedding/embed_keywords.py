"""EmbedKeywords: all that `siafu.embed` may be called with besides triples."""

from dataclasses import dataclass

from siafu.base.option import option
from siafu.embedding.embed_options import EmbedOptions, EmbedSession
from siafu.report.progress import Progress


@dataclass(frozen=True, kw_only=True)
class EmbedKeywords(EmbedSession, EmbedOptions):
    """The options of a run and of its session, and what only Python has."""

    progress: Progress | None = option(None, "Told of every epoch.")

    def options(self) -> EmbedOptions:
        return EmbedOptions(**self.as_json())
