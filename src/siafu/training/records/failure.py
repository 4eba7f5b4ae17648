"""What a run leaves behind when it fails: its story."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from siafu.base.errors import BadInput, Diverged, Interrupted, NoSpace, SiafuError
from siafu.report.files.run_directory import RunDirectory
from siafu.report.files.story_file import FailureStory, write_story
from siafu.training.trainer import Trainer


@contextmanager
def story_of_failure(trainer: Trainer, directory: RunDirectory) -> Iterator[None]:
    """Write what happened into the run's directory, if the block fails for a reason that its user could not foresee."""
    try:
        yield
    except (BadInput, Diverged, Interrupted) as error:
        if isinstance(error, NoSpace):
            error.exit_code = 1  # not as of input that is refused: epochs were trained
            _tell_of_resuming(error, directory)
        raise
    except Exception as error:
        if isinstance(error, SiafuError):
            _tell_of_resuming(error, directory)
        if trainer.callback_failed:  # it is the user's, who knows why
            raise
        why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        # The error counts, not that a disk has no room for its story.
        with suppress(OSError, SiafuError):
            write_story(directory.story, FailureStory(time.time(), why, *trainer.story()))
            error.add_note(f"what happened until then: siafu story {directory.path}")
        raise


def _tell_of_resuming(error: SiafuError, directory: RunDirectory) -> None:
    """Add to the error's line how to go on, if there is a checkpoint and the line does not say so."""
    line = str(error)
    if directory.checkpoint.exists() and "resume" not in line:
        error.args = (f"{line}; to go on from the last checkpoint, train again with resume (--resume)",)
