"""Send due notifications: current states that need a person, less those already sent."""

from dataclasses import dataclass, field
from datetime import datetime

from nvtrader_pipelines.notifications.channels import Channel, read_channels
from nvtrader_pipelines.notifications.message_delivery import DeliveryError, deliver
from nvtrader_pipelines.notifications.notification import CurrentStates, Notification, text_digest
from nvtrader_pipelines.notifications.redaction import redact
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.notification_record import Failure, NotificationRecord, NotificationRecordFile


@dataclass
class SendingRound:
    """Outcome of one round over all channels."""

    sent: dict[str, list[Notification]] = field(default_factory=dict)  # by channel
    problems: dict[str, str] = field(default_factory=dict)  # by channel that did not accept its message

    @property
    def summary(self) -> str:
        """Counts and problems in one line."""
        counts = [f"{len(item)} sent to {channel}" for channel, item in self.sent.items()]
        return "; ".join([*counts, *(f"{name}: {item}" for name, item in self.problems.items())]) or "nothing new"


def send_due(home: Home, states: CurrentStates, at: datetime) -> SendingRound:
    """Send each channel one message with its due states; after a failure they stay due.

    A state that has ended is forgotten, so that it is sent again when it returns.

    Raises:
        StorageError: if the channels or the record are not valid, or the record cannot be written.
    """
    channels, file, done = read_channels(home), NotificationRecordFile(home), SendingRound()
    if not channels:
        return done
    with file.lock():
        record = file.read()
        states = {**states, "failed_command": failed_commands(record)}
        current = [notification for found in states.values() for notification in found]
        forget_ended(record, states)
        file.write(record)  # before the first delivery: without a record each round would send all again
        for name, channel in channels.items():
            due = [
                notification
                for notification in current
                if notification.kind in channel.kinds and name not in record.sent.get(notification.key, ())
            ]
            if not due:
                continue
            try:
                deliver(channel, *compose(home, due))
            except DeliveryError as error:
                done.problems[name] = str(error)
                record.failed_deliveries[name] = Failure(reason=str(error), at=at)
            else:
                done.sent[name] = due
                record.failed_deliveries.pop(name, None)
                for notification in due:
                    record.sent.setdefault(notification.key, []).append(name)
            file.write(record)
    return done


def send_test(home: Home, channels: dict[str, Channel], at: datetime) -> dict[str, str]:
    """Send a test message to each channel; return the problem by channel, empty if accepted.

    Raises:
        StorageError: if the record is damaged or cannot be written.
    """
    results: dict[str, str] = {}
    subject = f"[nvtrader {home_name(home)}] test message"
    for name, channel in channels.items():
        try:
            kinds = ", ".join(kind.replace("_", " ") for kind in channel.kinds)
            deliver(channel, subject, f"The channel {name} receives notifications about: {kinds}.")
        except DeliveryError as error:
            results[name] = str(error)
        else:
            results[name] = ""
    file = NotificationRecordFile(home)
    with file.lock():
        record = file.read()
        record.failed_deliveries = {
            name: Failure(reason=problem, at=at) for name, problem in results.items() if problem
        }
        file.write(record)
    return results


def record_command(home: Home, command: str, problem: str | None, at: datetime) -> None:
    """Record that a command failed, or forget its last failure.

    Raises:
        StorageError: if the record is damaged or cannot be written.
    """
    file = NotificationRecordFile(home)
    with file.lock():
        record = file.read()
        before = record.failed_commands.pop(command, None)
        if problem is not None:
            record.failed_commands[command] = Failure(reason=redact(problem), at=at)
        if problem is not None or before is not None:
            file.write(record)


def failed_commands(record: NotificationRecord) -> list[Notification]:
    """Notifications about commands that failed when they last ran; a new reason is a new state."""
    return [
        Notification(
            "failed_command",
            f"{command}:{text_digest(failure.reason)}",
            f"`{command}` failed",
            f"`{command}` failed at {failure.at:%Y-%m-%d %H:%M} UTC: {failure.reason}\n"
            f"Correct the cause and run `{command}` again; `nvtrader doctor` checks the home.",
        )
        for command, failure in record.failed_commands.items()
    ]


def forget_ended(record: NotificationRecord, states: CurrentStates) -> None:
    """Forget states that have ended, of the kinds that were read."""
    current = {notification.key for found in states.values() for notification in found}
    record.sent = {
        key: channels for key, channels in record.sent.items() if key in current or key.partition(":")[0] not in states
    }


def compose(home: Home, due: list[Notification]) -> tuple[str, str]:
    """Subject and body of one message about some states."""
    more = f" (and {len(due) - 1} more)" if len(due) > 1 else ""
    bodies = (
        [due[0].body] if len(due) == 1 else [f"{notification.subject}\n{notification.body}" for notification in due]
    )
    return f"[nvtrader {home_name(home)}] {due[0].subject}{more}", "\n\n".join([*bodies, f"Home: {home_name(home)}"])


def home_name(home: Home) -> str:
    """Name of the home's folder."""
    return home.root.name
