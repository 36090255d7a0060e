"""An application with exactly-once processing: reads a topic, writes a result for each record, commits both together.

Started as a separate process, so that it can be killed. It prints one line for each committed transaction.
"""

from __future__ import annotations

import argparse
import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

_DEADLINE = 30.0


def main() -> None:
    """Run until the whole input is processed, if requested, else forever."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True, action="append", help="each gets every result")
    parser.add_argument("--id", required=True, help="transactional.id")
    parser.add_argument("--protocol", default="classic")
    parser.add_argument("--batch", type=int, default=1, help="records a transaction")
    parser.add_argument("--abort-every", type=int, default=0, help="every so many transactions one is given up first")
    parser.add_argument("--until-end", action="store_true")
    asked = parser.parse_args()
    consumer = Consumer(
        {
            "bootstrap.servers": asked.bootstrap,
            "group.id": asked.group,
            "group.protocol": asked.protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            **({"session.timeout.ms": 6000} if asked.protocol == "classic" else {}),
        }
    )
    producer = Producer(
        {"bootstrap.servers": asked.bootstrap, "transactional.id": asked.id, "transaction.timeout.ms": 10_000}
    )
    _again(producer.init_transactions)
    consumer.subscribe([asked.input])
    transactions, ended = 0, set[int]()
    while True:
        messages = []
        for message in consumer.consume(asked.batch, 0.5):
            error = message.error()
            if error is None:
                messages.append(message)
                ended.discard(message.partition())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        assigned = {place.partition for place in consumer.assignment()}
        if asked.until_end and not messages and assigned and ended >= assigned:
            break
        if not messages:
            continue
        transactions += 1
        if asked.abort_every and transactions % asked.abort_every == 0:
            _process(asked, consumer, producer, messages, commit=False)
        _process(asked, consumer, producer, messages, commit=True)
        sys.stdout.write(f"committed {transactions}\n")
        sys.stdout.flush()
    consumer.close()


def _process(
    asked: argparse.Namespace, consumer: Consumer, producer: Producer, messages: list[Message], *, commit: bool
) -> None:
    producer.begin_transaction()
    following: dict[int, int] = {}
    for message in messages:
        following[message.partition()] = message.offset() + 1
        for output in asked.output:
            producer.produce(output, b"done-" + message.value(), partition=message.offset() % 2)
    places = [TopicPartition(asked.input, partition, offset) for partition, offset in following.items()]
    _again(lambda: producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), _DEADLINE))
    if commit:
        _again(lambda: producer.commit_transaction(_DEADLINE))
    else:
        producer.flush(_DEADLINE)
        _again(lambda: producer.abort_transaction(_DEADLINE))


def _again(call: object) -> None:
    """The retriable errors of a broker that is starting."""
    while True:
        try:
            call()  # type: ignore[operator]
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


if __name__ == "__main__":
    main()
