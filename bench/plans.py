"""What a plan is worth beside the naive choice, on the paper's four graphs: a table in Markdown.

python bench/plans.py
"""

from siafu.cost.money import dollars
from siafu.planning.plan import plan
from siafu.report.progress import duration

_HIDDEN = {"reddit-small": 128, "reddit-large": 128, "amazon": 64, "friendster": 48}  # the paper's Table 1


def main() -> None:
    print(
        "| graph | choice | time | dollars | naive | time | dollars | value, × naive | with Lambdas, value × naive |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name, hidden in _HIDDEN.items():
        found = plan(name, "gcn", hidden=hidden)
        chosen, naive, lambdas = found.chosen, found.naive, found.lambdas
        assert naive is not None
        cells = [name, str(chosen.setup), duration(chosen.seconds), dollars(chosen.usd)]
        cells += [str(naive.setup.fleet), duration(naive.seconds), dollars(naive.usd)]
        cells += [f"{chosen.value / naive.value:.2f}"]
        cells += ["-" if lambdas is None else f"{lambdas.value / naive.value:.2f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
