"""Pages of the RL Lab."""

import json
import re
from collections import Counter
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated, Any, Literal, get_args

from fastapi import Path, Query, Request
from pydantic import Field, JsonValue
from starlette.responses import Response

from nvtrader_pipelines.evaluation.findings import describe_period
from nvtrader_pipelines.evaluation.formats import UNKNOWN
from nvtrader_pipelines.evaluation.verdict_tables import reported_period
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.promotion.policy_cards import find_policy
from nvtrader_pipelines.research.journal import TrialJudged
from nvtrader_pipelines.research.recorded_session import read_session
from nvtrader_pipelines.research.study import drawn_knobs, is_finished, study_figures
from nvtrader_pipelines.runs.applications import app_content
from nvtrader_pipelines.runs.drafts import CheckedDraft, check_draft, format_draft
from nvtrader_pipelines.runs.experiment_list import list_experiments
from nvtrader_pipelines.runs.registration import fit_history
from nvtrader_pipelines.runs.run_charts import Replay, has_learned, replay, tested_folds
from nvtrader_pipelines.runs.run_comparison import compare_named_runs
from nvtrader_pipelines.runs.run_document import RunDocument, run_document
from nvtrader_pipelines.runs.run_library import library_runs
from nvtrader_pipelines.runs.run_queries import find_run_by_name, fold_rows, stage_rows
from nvtrader_pipelines.runs.run_verdict import EQUAL_WEIGHT, Claim, RunVerdict
from nvtrader_pipelines.scoreboard.board import read_ranking
from nvtrader_pipelines.service.api.answers import Body
from nvtrader_pipelines.service.api.context import Context, Shared, router
from nvtrader_pipelines.service.api.page.content import render
from nvtrader_pipelines.service.api.page.routes import PLOTLY, POLICY
from nvtrader_pipelines.service.api.problems import refusing
from nvtrader_pipelines.service.documents.catalogue import json_schema_of
from nvtrader_pipelines.service.documents.component_pages import documented_families
from nvtrader_pipelines.service.operations.arguments import App, RunName
from nvtrader_pipelines.storage.code_server import running_url
from nvtrader_pipelines.storage.documents import MAX_BYTES, parse_document
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.ledger import LedgerRun
from nvtrader_pipelines.storage.spec_versions import version_content
from nvtrader_pipelines.storage.specs import read_experiments

routes = router("page")
Text = Annotated[str, Query(max_length=200)]
SessionId = Annotated[str, Path(max_length=100)]
MAX_COMPARED = 8  # runs
MAX_NAME = 63
GROUPS = {
    "name": "First settings",
    "market": "Market",
    "environment": "Environment",
    "agent": "Agent",
    "pipeline": "Weights and limits",
    "splitter": "Tests",
}


class Draft(Body):
    """Draft of an experiment, as fields or as YAML."""

    content: dict[str, JsonValue] = Field(default_factory=dict)
    yaml: str | None = Field(default=None, max_length=MAX_BYTES)


SECTIONS = {
    "verdict": "Verdict",
    "test": "Test",
    "equity": "Equity",
    "gross": "Gross",
    "folds": "Folds",
    "rewards": "Rewards, weights",
    "replay": "Replay",
    "episodes": "Episodes",
    "training": "Training",
    "card": "Card",
}


@routes.get("/lab", include_in_schema=False)
def show_library(shared: Shared, experiment: Text = "", compare: Text = "", *, everything: bool = False) -> Response:
    """Show experiments with their versions, and runs, which can be filtered and compared."""
    runs = library_runs(shared.store, everything=everything)
    versions, problems, n_hidden = list_experiments(shared.store, everything=everything)
    files = read_experiments(shared.home).specs
    return show(
        shared,
        "library",
        here="/lab",
        runs=[run.model_dump() for run in runs],
        versions=versions.to_dicts(),
        problems=problems,
        everything=everything,
        n_hidden=n_hidden,
        archived=shared.store.ledger.archived_names(),
        variants={variant.name for spec in files for variant in spec.variants() if variant.name != spec.name},
        wanted=experiment,
        compared=compare,
        agents=sorted({run.agent for run in runs if run.agent}),
        sources=sorted({run.source for run in runs if run.source}),
        tags=sorted({tag for run in runs for tag in run.tags.split(", ") if tag}),
        verdicts=[verdict for verdict in Claim if any(run.claim == verdict for run in runs)],
    )


@routes.get("/lab/compare", include_in_schema=False)
def show_comparison(shared: Shared, run: Annotated[list[Text], Query()] = []) -> Response:  # noqa: B006 - FastAPI copies it
    """Show runs side by side: over the sessions that they share, over their own tests, and where their specs differ."""
    try:
        if len(run) > MAX_COMPARED:
            raise ValueError(f"at most {MAX_COMPARED} runs are compared, but {len(run)} were chosen; choose fewer")
        comparison = compare_named_runs(shared.store, list(dict.fromkeys(run)))
    except (StorageError, ValueError) as error:
        return show(shared, "problem", 422, title="These runs cannot be compared", problem=error)
    curves = [curve.model_dump(mode="json") for curve in comparison.shared.curves]
    return show(shared, "compare", comparison=comparison.model_dump(), curves=curves)


@routes.get("/lab/build", include_in_schema=False)
def show_builder(shared: Shared, like: Text = "", app: App | None = None) -> Response:
    """Show a form for an experiment, which begins as a registered version or an application, or fits the market."""
    try:
        content = version_content(shared.store.ledger, like) if like else {}
    except StorageError as error:
        return show(shared, "problem", 404, title="There is no such version", problem=error)
    sources = shared.store.panels.sources()
    if app:
        try:
            content = app_content(shared.store, app)
        except (StorageError, ValueError) as error:
            return show(shared, "problem", 422, title=f"The market cannot run {app}", problem=error)
    elif not like and sources and MarketChoice().source not in sources:
        content = {"market": {"source": sources[0]}}
        with suppress(ValueError):  # it is too short
            content = fit_history(shared.store, sources[0])
    name = f"{content['name']}-2" if like else str(content.get("name", "my-experiment"))
    draft = check_draft(shared.store, {**content, "name": name[-MAX_NAME:]})
    return show(
        shared,
        "build",
        here="/lab/build",
        draft=draft,
        schema=json_schema_of("experiment"),
        like=like,
        apps=get_args(get_args(App)[0]),
        app=app,
        groups=GROUPS,
    )


@routes.post("/lab/build/check", include_in_schema=False)
def check(shared: Shared, draft: Draft) -> CheckedDraft:
    """Check a draft, given as fields or as YAML."""
    content = parse_document(draft.yaml.encode(), "the YAML") if draft.yaml is not None else draft.content
    return check_draft(shared.store, json.loads(json.dumps(content, default=str)))  # days as in JSON


@routes.get("/lab/components", include_in_schema=False)
def show_components(shared: Shared) -> Response:
    """Show every family of components, its members with fields, source and an example."""
    return show(shared, "components", here="/lab/components", families=documented_families())


@routes.get("/lab/scoreboard", include_in_schema=False)
def show_scoreboard(shared: Shared) -> Response:
    """Show the ranking of every contest."""
    try:
        ranking = read_ranking(shared.store)
    except StorageError as error:
        return show(shared, "problem", title="Nothing is ranked yet", problem=error, here="/lab/scoreboard")
    contests = [rows.to_dicts() for rows in ranking.partition_by("contest", maintain_order=True)]
    return show(shared, "scoreboard", here="/lab/scoreboard", contests=contests)


@routes.get("/report", include_in_schema=False)
def show_report(shared: Shared) -> Response:
    """Show the report, drawn anew where its results have changed."""
    from nvtrader_pipelines.service.report import TITLES, Report  # imports matplotlib: seconds

    def read() -> bytes:
        return Report.read(shared.store).body.encode()

    body = shared.answers.keep(("report",), read).decode()
    return show(shared, "report_page", here="/report", titles=TITLES, body=body)


@routes.get("/numbers", include_in_schema=False)
def show_numbers(shared: Shared, request: Request, of: Annotated[str, Query(max_length=500)]) -> Response:
    """Show the answer of a route as tables."""
    paths = request.app.openapi()["paths"].items()
    reads = {re.sub("{[^}]*}", "[^/]+", path): methods["get"] for path, methods in paths if "get" in methods}
    address = of.partition("?")[0]
    read = next((read for pattern, read in reads.items() if re.fullmatch(pattern, address)), None)
    if read is None or "application/json" not in read["responses"]["200"].get("content", {}):
        return show(shared, "problem", 404, title="There are no such numbers", problem=f"no route answers {address}")
    return show(shared, "numbers", title=read["summary"].rstrip("."), address=of)


@routes.get("/lab/tear-sheet/{policy:path}", include_in_schema=False)
def show_tear_sheet(shared: Shared, policy: Annotated[str, Path(max_length=200)]) -> Response:
    """Show the tear sheet of a policy."""
    try:
        ref = find_policy(shared.store, policy)
    except StorageError as error:
        return show(shared, "problem", 404, title="There is no such policy", problem=error)
    return show(shared, "tear_sheet", policy=ref.policy, run_id=ref.run_id)


@routes.get("/lab/pictures/tear-sheet/{policy:path}", include_in_schema=False)
def draw_sheet(shared: Shared, policy: Annotated[str, Path(max_length=200)], run: Text) -> Response:
    """Draw the tear sheet of a policy of a run."""
    from nvtrader_pipelines.runs.run_pictures import draw_tear_sheet, tear_sheet_path

    ref = PolicyRef(run, policy)

    def read() -> bytes:
        path = tear_sheet_path(shared.store, ref)
        draw_tear_sheet(shared.store, ref, path)
        return path.read_bytes()

    with refusing(NotFoundError):
        picture = shared.answers.keep(("tear-sheet", run, policy), read)
    return Response(picture, media_type="image/png")


@routes.get("/lab/pictures/worlds/{run}/{name}", include_in_schema=False)
def draw_world(shared: Shared, run: RunName, name: Literal["rewards", "quotes"]) -> Response:
    """Draw the test of a run in a world."""
    from nvtrader_pipelines.runs.run_pictures import world_pictures

    with refusing(NotFoundError):
        row = find_run_by_name(shared.store.ledger, run)

        def read() -> bytes:
            pictures = world_pictures(shared.store, row)
            if name not in pictures:
                raise NotFoundError(f"the run {row.run_id} has no picture of {name}")
            return pictures[name].png()

        picture = shared.answers.keep(("lab/world", row.run_id, name), read)
    return Response(picture, media_type="image/png")


@routes.get("/lab/searches/{session_id}", include_in_schema=False)
def show_search(shared: Shared, session_id: SessionId) -> Response:
    """Show which knobs a search tried, with the results of its trials."""
    try:
        recorded = read_session(shared.store.searches.find(session_id))
    except NotFoundError as error:
        return show(shared, "problem", 404, title="There is no such search", problem=error)
    except StorageError as error:
        return show(shared, "problem", 503, title=f"The search {session_id} cannot be read", problem=error)
    trials = [line for line in recorded.lines if isinstance(line, TrialJudged)]
    problem = ""
    try:
        drawn_knobs(recorded.lines, recorded.session.spec.space().knobs)
    except ValueError as error:
        problem = str(error)
    return show(
        shared,
        "search",
        session=recorded.session,
        n_finished=sum(map(is_finished, trials)),
        others=Counter(trial.status for trial in trials if not is_finished(trial)),
        problem=problem,
    )


@routes.get("/lab/searches/{session_id}/charts", include_in_schema=False)
def search_charts(shared: Shared, session_id: SessionId) -> Response:
    """Figures of the trials of a search, as JSON of Plotly."""

    def read() -> dict[str, Any]:
        recorded = read_session(shared.store.searches.find(session_id))
        return study_figures(recorded.lines, drawn_knobs(recorded.lines, recorded.session.spec.space().knobs))

    with refusing(NotFoundError):
        return shared.answers.get(("lab/search", session_id), read)


@routes.get("/lab/runs/{run}", include_in_schema=False)
def show_run(shared: Shared, run: RunName) -> Response:
    """Show a run: verdict, curves, folds, rewards, weights, replay, training and card."""
    try:
        row = find_run_by_name(shared.store.ledger, run)
    except StorageError as error:
        return show(shared, "problem", 404, title="There is no such run", problem=error)
    return show(shared, "run", **_run_values(shared, row))


@routes.get("/lab/runs/{run}/decisions/{fold}", include_in_schema=False, response_model=Replay)
def decisions(shared: Shared, run: RunName, fold: int) -> Any:
    """Decisions of a run in the test of a fold, to be replayed."""
    with refusing(NotFoundError):
        row = find_run_by_name(shared.store.ledger, run)
        return shared.answers.get(("lab/replay", row.run_id, fold), lambda: replay(shared.store, row, fold))


def show(shared: Context, template: str, status: int = 200, here: str = "", **values: Any) -> Response:
    """Show a page of the Lab."""
    page = render(
        f"lab/{template}",
        here=here,
        halted=shared.store.switch.halt_reason(),
        release=version("nvtrader-pipelines"),
        plotly=PLOTLY,
        ui=running_url(shared.home.dagster),
        **values,
    )
    return Response(page, status, {"content-security-policy": POLICY}, "text/html")


def _run_values(shared: Context, row: LedgerRun) -> dict[str, Any]:
    """What the page of a run shows."""
    store, document = shared.store, run_document(shared.store, row)
    figures = [figure.model_dump() for figure in document.figures]
    period = reported_period(figure["period"] for figure in figures)
    accounts = [figure for figure in figures if figure["period"] == period and figure["kind"] != "policy"]
    own = next((figure for figure in accounts if figure["kind"] == "ensemble"), None)
    has_training = has_learned(store, row)
    values = {
        "experiment": row.partition_key.partition("@")[0],
        "run": document.run,
        "verdict": document.verdict,
        "annotation": document.annotation,
        "description": document.spec.get("description", ""),
        "splitter": document.spec.get("splitter", {}).get("kind", "").replace("_", "-"),
        "world_results": [row.model_dump() for row in document.world_results],
        "warnings": document.warnings,
        "views": document.views,
        "spec": format_draft(document.spec),
        "card": _card(document),
        "events": len(document.events),
        "stages": stage_rows(document.frame("events")).to_dicts() if document.events else [],
        "has_pictures": any(row.n_episodes > 1 for row in document.world_results),
        "has_training": has_training,
        "headline": f"The run is {document.run.status}{'' if document.world_results else ': no verdict yet'}",
        "period": "",
        "accounts": accounts,
        "own": own,
        "leverage": document.leverage,
        "folds": [],
        "tested": tested_folds(store, row) if own else [],
    }
    values |= _verdict_values(shared, row, accounts) if own else {}
    shown = {
        **dict.fromkeys(("equity", "rewards", "episodes"), own is not None),
        "gross": document.leverage is not None,
        "folds": bool(values["folds"]),
        "replay": bool(values["tested"]),
        "test": values["has_pictures"],
        "training": has_training,
    }
    values["sections"] = [(key, name) for key, name in SECTIONS.items() if shown.get(key, True)]
    return values


def _verdict_values(shared: Context, row: LedgerRun, accounts: list[dict[str, Any]]) -> dict[str, Any]:
    """What the page of a run with a verdict shows beside its figures."""
    folds = fold_rows(shared.store, row.run_id).to_dicts()
    verdict = RunVerdict.read(shared.store, row.run_id)
    low, high = _axis(accounts)
    fold_low, fold_high = _axis(folds)
    return {
        "headline": verdict.claim.capitalize(),
        "period": describe_period(verdict.period),
        "deflated": verdict.deflated,
        "equal": next((account for account in accounts if account["policy"] == EQUAL_WEIGHT), None),
        "folds": folds,
        "low": low,
        "high": high,
        "fold_low": fold_low,
        "fold_high": fold_high,
    }


def _axis(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Bounds of an axis that holds all intervals of the Sharpe ratio, and 0."""
    bounds = [row[name] for row in rows for name in ("sharpe_low", "sharpe_high") if row[name] is not None]
    low, high = min([0.0, *bounds]), max([0.0, *bounds])
    return (low, high) if high > low else (-1.0, 1.0)


def _card(document: RunDocument) -> dict[str, dict[str, Any]]:
    """Facts of a run's card by group."""
    run, spec = document.run, document.spec
    agent, environment = spec["agent"], spec.get("environment")
    return {
        "Version": {
            "experiment": run.partition_key,
            "spec hash": run.spec_hash,
            "code": run.code_version,
            "seeds": ", ".join(map(str, run.seeds)),
        },
        "Agent": _settings(agent),
        **({"Environment": _environment(environment)} if environment else {"World": _settings(spec["world"])}),
        "Data and files": {
            "market": run.source,
            "panel": run.panel_digest,
            "policy files": len(document.policies),
            "manifest": run.policies_sha256 or UNKNOWN,
            "MLflow run": run.mlflow_run_id or UNKNOWN,
        },
    }


def _settings(part: dict[str, Any]) -> dict[str, Any]:
    """Plain fields of a part of a spec, for its card."""
    return {name.replace("_", " "): value for name, value in part.items() if isinstance(value, int | float | str)}


def _environment(environment: dict[str, Any]) -> dict[str, Any]:
    """Facts of an environment, for the card of a run."""
    return {
        "look-back": f"{environment.get('lookback')} sessions",
        "decides every": f"{environment.get('rebal_freq')} sessions",
        "fills": environment.get("fill"),
        "rewards": ", ".join(reward["kind"].replace("_", " ") for reward in environment.get("rewards", [])),
        "volatility penalty": environment.get("vol_penalty"),
    }
