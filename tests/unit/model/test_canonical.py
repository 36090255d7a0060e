from drkit.model.canonical import document_digest


def test_equal_documents_have_one_digest_and_others_another():
    assert document_digest({"a": 1, "b": [2]}) == document_digest({"b": [2], "a": 1})
    assert document_digest({"a": 1}) != document_digest({"a": 2})
    assert document_digest({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
