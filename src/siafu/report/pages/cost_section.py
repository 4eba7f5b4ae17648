"""A report's section on costs: dollars by purpose, and the cost of the same run elsewhere."""

from collections.abc import Iterator, Mapping
from typing import Any

from siafu.cost.run_prices import wanted
from siafu.report import words
from siafu.report.pages.markup import Html, bar, columns, section, table

_PARTS = {
    "graph_servers_usd": "graph servers",
    "weight_servers_usd": "weight servers",
    "lambda_compute_usd": "Lambdas, by the GB-second",
    "lambda_requests_usd": "Lambdas, by the request",
}


def cost_section(summary: Mapping[str, Any]) -> Html:
    """Nothing, if the summary has no bill, or one that nobody asked for."""
    cost = summary.get("cost")
    if not isinstance(cost, dict) or not wanted(cost):
        return Html("")
    return section(
        "Cost",
        columns(
            table("What the dollars were for", ("what", "dollars", "share", ""), _parts(cost)),
            table("The same run elsewhere", ("where", "takes", "costs", "value"), _alternatives(cost)),
        ),
        note=f"{_where(cost)} Value is 1 / (seconds × dollars): more is better. At {cost.get('prices', 'unknown prices')}.",
    )


def _where(cost: Mapping[str, Any]) -> str:
    if cost.get("assumed"):
        return f"Nobody said what it ran on: this is what it would cost on {_fleet(cost)}, the type most like the machine."
    return f"It ran on {_fleet(cost)}."


def _fleet(cost: Mapping[str, Any]) -> str:
    return f"{cost.get('machines')} × {cost.get('instance')}{', spot' if cost.get('spot') is True else ''}"


def _parts(cost: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    total = words.amount(cost.get("usd")) or 0.0
    for name, said in _PARTS.items():
        spent = words.amount(cost.get(name))
        if spent:
            share = spent / total if total else 0.0
            yield said, words.usd(spent), words.percent(share), bar(share)
    yield "in all", words.usd(total), "", ""
    if (value := words.amount(cost.get("value"))) is not None:
        yield "value", words.short(value), "", ""


def _alternatives(cost: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    found = cost.get("alternatives")
    for each in found if isinstance(found, list) else []:
        if not isinstance(each, dict) or not isinstance(each.get("instance"), str):
            continue
        seconds, usd, value = (words.amount(each.get(name)) for name in ("seconds", "usd", "value"))
        yield _fleet(each), words.seconds(seconds), words.usd(usd), words.short(value)
