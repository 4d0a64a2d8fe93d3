from nvtrader_pipelines.components.text import group_by_message, name_symbols


def test_symbols_with_one_message_are_one_sentence():
    messages = {"AAA": "gap", "BBB": "late", "CCC": "gap"}
    assert group_by_message(messages.items()) == ["2 symbols (AAA, CCC): gap", "BBB: late"]


def test_symbols_beyond_five_are_counted():
    assert name_symbols([f"S{k}" for k in range(20)]) == "20 symbols (S0, S1, S2, S3, S4 and 15 more)"
