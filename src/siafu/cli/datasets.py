"""`siafu datasets`: the datasets that `siafu.load` and `siafu train` know by name."""

import json
from dataclasses import asdict

from siafu.cli.common import NUMBER, WORD, show_table
from siafu.cli.declared import json_flag


def datasets(as_json: bool = json_flag("Print a JSON list, one object a dataset.")) -> None:
    """List the datasets that can be loaded by name."""
    from siafu.graph.datasets import listings

    found = listings()
    if as_json:
        print(json.dumps([asdict(listing) for listing in found]))
        return
    rows = []
    for each in found:
        counts = (each.num_vertices, each.num_edges, each.num_features, each.num_classes)
        numbers = ["" if count is None else f"{count:,}" for count in counts]
        rows.append((each.name, *numbers, "yes" if each.ready else "no", each.source))
    counted = dict.fromkeys(("vertices", "edges", "features", "classes"), NUMBER)
    show_table({"name": WORD, **counted, "here": WORD, "from": {"overflow": "fold"}}, rows)
