from nvtrader_pipelines.research.model_answers import ProposalAnswer
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.sections.search import read_search
from nvtrader_pipelines.storage.store import Store
from tests.research.sessions import JournalBuilder, a_session, write_session


def test_page_escapes_the_reason_of_the_model(home):
    reason = ProposalAnswer(changes={}, reason="<img src=x onerror=alert(1)>\x1b & **b**").reason
    builder = JournalBuilder().answer(changes={"gamma": 0.95}, reason=reason).trial(0.1, gamma=0.95, reason=reason)
    builder.answer("late", message="<b>late</b>").trial(0.1)
    write_session(home, a_session(), builder.lines)
    content = read_search(Context(Store(home), "ann"))
    assert "&lt;img src=x onerror=alert(1)&gt; &amp; **b**" in content.parts["trials"]
    assert not any("<img" in part or "<b>late" in part for part in content.parts.values())
    assert [row["trial"] for row in content.series["trials"].rows] == [1, 2]
