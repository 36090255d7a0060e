from drkit.kafka.admin.topic_requests import TOPICS_A_REQUEST, NewTopic, first_to_create


def topics(count: int, partitions: int) -> list[NewTopic]:
    return [NewTopic(f"t-{number}", partitions, 1) for number in range(count)]


def test_a_request_creates_a_bounded_number_of_topics():
    assert first_to_create(topics(500, 1)) == topics(500, 1)[:TOPICS_A_REQUEST]


def test_a_request_creates_a_bounded_number_of_partitions():
    assert [topic.name for topic in first_to_create(topics(20, 500))] == ["t-0", "t-1", "t-2", "t-3"]


def test_a_topic_too_large_for_the_bound_is_asked_for_alone():
    assert [topic.name for topic in first_to_create(topics(2, 9_000))] == ["t-0"]


def test_nothing_to_create_is_no_request():
    assert first_to_create([]) == []
