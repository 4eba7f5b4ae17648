"""Faults: what goes wrong in a simulated run, and how often."""

from dataclasses import dataclass

from siafu.pipeline.events import Event
from siafu.pipeline.ids import Address, ServerId


@dataclass(frozen=True, slots=True)
class Faults:
    """Chances, each from 0 to 1, and accidents.

    lost:       that a message is lost; it is sent again after `resend`
    duplicated: that a message arrives twice
    held_up:    that a message of the kinds in `victims` takes up to `hold` seconds longer, while others overtake it
                by whole epochs
    late:       that a Lambda takes 20 times as long
    dead:       that a Lambda never answers
    relaunch:   after how long a Lambda that has not answered is launched again
    deaths:     when which server dies
    hand_overs: when another is asked to take which server's place
    undead:     that one that is given up lives on until another stands in its place
    copies:     when an eager copy of which graph server is made
    unnoticed:  that nobody notices the death of an eager copy
    with_sender: that a letter is lost with the server that sent it
    resend, detection, replacement: seconds until a message is sent again, a death is noticed, a server stands again
    """

    lost: float = 0.0
    duplicated: float = 0.0
    held_up: float = 0.0
    victims: tuple[type[Event], ...] = (Event,)
    late: float = 0.0
    dead: float = 0.0
    relaunch: float = 3.0
    deaths: tuple[tuple[float, Address], ...] = ()
    hand_overs: tuple[tuple[float, Address], ...] = ()
    undead: float = 0.0
    copies: tuple[tuple[float, ServerId], ...] = ()
    unnoticed: float = 0.0
    with_sender: float = 0.0
    hold: float = 40.0
    resend: float = 2.0
    detection: float = 3.0
    replacement: float = 2.0
