"""A report's section on costs: dollars by purpose, and the cost of the same run elsewhere."""

from collections.abc import Iterator, Mapping
from typing import Any

from siafu.report import words
from siafu.report.pages.markup import Html, bar, columns, section, table

_PARTS = {
    "graph_servers_usd": "graph servers",
    "weight_servers_usd": "weight servers",
    "lambda_compute_usd": "Lambdas, by the GB-second",
    "lambda_requests_usd": "Lambdas, by the request",
}


def cost_section(summary: Mapping[str, Any]) -> Html:
    """Nothing, if the summary has no bill."""
    cost = summary.get("cost")
    if not isinstance(cost, dict):
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
    kind = f"{cost.get('machines')} × {cost.get('instance')}" + (", spot" if cost.get("spot") is True else "")
    if cost.get("assumed"):
        return f"Nobody said what it ran on: this is what it would cost on {kind}, the type most like the machine."
    return f"It ran on {kind}."


def _parts(cost: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    total = _number(cost.get("usd")) or 0.0
    for name, said in _PARTS.items():
        spent = _number(cost.get(name))
        if spent:
            share = spent / total if total else 0.0
            yield said, words.usd(spent), words.percent(share), bar(share)
    yield "in all", words.usd(total), "", ""
    value = _number(cost.get("value"))
    if value is not None:
        yield "value", f"{value:,.4g}", "", ""


def _alternatives(cost: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    found = cost.get("alternatives")
    for each in found if isinstance(found, list) else []:
        if not isinstance(each, dict) or not isinstance(each.get("instance"), str):
            continue
        where = f"{each.get('machines')} × {each['instance']}" + (
            ", spot" if each.get("spot") is True else ""
        )
        value = _number(each.get("value"))
        yield (
            where,
            words.seconds(_number(each.get("seconds"))),
            words.usd(_number(each.get("usd"))),
            words.NOTHING if value is None else f"{value:,.4g}",
        )


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
