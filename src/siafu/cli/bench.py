import typer

app = typer.Typer(help="Measure speed, side by side with others.")


@app.command("gather")
def gather() -> None:
    raise NotImplementedError
