"""Starts several servers of embeddings: as processes of this machine, or on a Ray cluster."""

from siafu.base.errors import BadInput
from siafu.cluster.driven_cluster import DrivenCrew
from siafu.embedding.embed_keywords import EmbedKeywords
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.servers.process_crew import ProcessCrew
from siafu.embedding.servers.server_plan import EmbedPlan
from siafu.embedding.servers.servers_trainer import ServersTrainer
from siafu.graph.triples import Triples


def servers_trainer(triples: Triples, options: EmbedOptions, asked: EmbedKeywords) -> ServersTrainer:
    """The driver of `options.servers` servers."""
    if triples.source is None:
        raise BadInput(
            "several servers open the triples on their own machines, and these are in memory alone: "
            "import them into a store, and give its path"
        )
    scratch = None if asked.scratch is None else str(asked.scratch)
    plan = EmbedPlan(triples.source, triples.fingerprint, options.as_json(), scratch, options.servers)
    return ServersTrainer(triples, options, _crew(plan, asked.cluster))


def _crew(plan: EmbedPlan, cluster: str | None) -> DrivenCrew:
    if cluster is None:
        return ProcessCrew(plan)
    from siafu.embedding.servers.ray_embed_crew import RayEmbedCrew

    return RayEmbedCrew(cluster, plan)
