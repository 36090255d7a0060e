"""The option `--topic`, for every verb that takes some topics of a link's source, or some partitions of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from drkit.model.errors import ConfigError

if TYPE_CHECKING:
    from drkit.model.audit.audit_result import TopicChoice

TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="T",
        help="A topic of the source (t), some partitions (t:0,1), or a pattern of whole names (orders.*); repeat it.",
    ),
]


def topic_choices(names: list[str] | None) -> tuple[TopicChoice, ...]:
    """The topics that `--topic` names.

    Raises:
        ConfigError: one is neither t nor t:0,1, nor a pattern.
    """
    if not names:
        return ()
    from drkit.model.audit.audit_result import TopicChoice  # with all that an audit results in

    try:
        return tuple(TopicChoice.parse(name) for name in names)
    except ValueError as error:
        raise ConfigError(f"--topic: {error}", remedy="For example --topic flights or --topic flights:0,1") from None
