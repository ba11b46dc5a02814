"""The server keeps to its OpenAPI schema: requests made of it, right and wrong, are answered as it says.

Bounded, and the same examples each time, as everything that CI runs.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.config import GenerationConfig, ProjectConfig, ProjectsConfig, SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance
from serving import GEMM, GPU, MINE, SOURCE, Served, outcome, served, submit

EXAMPLES = 12  # an operation
bounded = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    database=None,
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("schema")) as found, found.client(MINE) as client:
        outcome(client, submit(client))
        yield found


@pytest.fixture(scope="module")
def api(running: Served) -> schemathesis.BaseSchema:
    generation = GenerationConfig(deterministic=True, database="none")
    projects = ProjectsConfig(default=ProjectConfig(generation=generation))
    config = SchemathesisConfig(projects=projects)
    return schemathesis.openapi.from_url(f"{running.url}/openapi.json", config=config)


def every_operation(api: schemathesis.BaseSchema, mode: GenerationMode) -> Counter[int]:
    """Holds every operation against the schema; how often there was which status."""
    statuses: Counter[int] = Counter()

    def check(case: schemathesis.Case) -> None:
        # What a file holds, and what it is called, no schema says
        excluded = [positive_data_acceptance] if case.operation.body else []
        statuses[case.call_and_validate(excluded_checks=excluded).status_code] += 1

    for result in api.get_all_operations():
        with contextlib.suppress(Unsatisfiable):  # without parameters there is nothing to get wrong
            bounded(given(result.ok().as_strategy(generation_mode=mode))(check))()
    return statuses


@pytest.mark.untraced
def test_requests_by_the_schema_are_answered_as_it_says(api: schemathesis.BaseSchema) -> None:
    statuses = every_operation(api, GenerationMode.POSITIVE)
    assert {200, 400, 403, 404} <= set(statuses)
    assert statuses[200] > 30


@pytest.mark.untraced
def test_requests_against_the_schema_are_refused_as_it_says(api: schemathesis.BaseSchema) -> None:
    statuses = every_operation(api, GenerationMode.NEGATIVE)
    assert {400, 404, 422} <= set(statuses)
    assert max(statuses) < 500


def test_answers_to_a_submission_are_as_the_schema_says(api: schemathesis.BaseSchema, running: Served) -> None:
    """From its acceptance to its deletion; the generated requests above have no file that could be evaluated."""
    place = "{leaderboard_name}/{gpu_type}/{submission_mode}"
    file = {"file": ("a.py", SOURCE.encode())}
    with running.client(MINE) as client:
        accepted = client.post(f"/submission/{GEMM}/{GPU}/leaderboard", files=file)
        number = accepted.json()["details"]["id"]
        waiting = client.get(f"/user/submissions/{number}")
        outcome(client, number)
        answers = {
            ("/submission/" + place, "POST"): accepted,
            ("/" + place, "POST"): client.post(f"/{GEMM}/{GPU}/test", files=file),
            ("/user/submissions/{submission_id}", "GET"): client.get(f"/user/submissions/{number}"),
            ("/user/submissions", "GET"): client.get("/user/submissions"),
            ("/submissions/{leaderboard_name}/{gpu_name}", "GET"): client.get(f"/submissions/{GEMM}/{GPU}"),
            ("/live/queue", "GET"): client.get("/live/queue"),
            ("/user/submissions/{submission_id}", "DELETE"): client.delete(f"/user/submissions/{number}"),
        }
    assert accepted.status_code == 202
    api["/user/submissions/{submission_id}"]["GET"].validate_response(waiting)
    for (path, method), answer in answers.items():
        assert answer.is_success, path
        answer.request.read()  # schemathesis looks at both
        api[path][method].validate_response(answer)
