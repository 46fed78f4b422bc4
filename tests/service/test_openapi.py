"""Requests made up from the OpenAPI document: none breaks the service, and all answers are as the document says.

By default few are made up; for some thousands, set how many each operation of the document gets:
JOULECAST_GENERATED_REQUESTS=400 python -m pytest tests/service/test_openapi.py
"""

import contextlib
import os

import hypothesis
import pytest

PER_OPERATION = int(os.environ.get("JOULECAST_GENERATED_REQUESTS", "5"))
pytestmark = pytest.mark.filterwarnings("ignore")  # of schemathesis itself


@pytest.fixture(scope="module")
def api(narrow):
    schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis")
    # The service with narrow limits, because generated requests may ask for the whole catalogue.
    return schemathesis.openapi.from_url(f"{narrow.url}/v1/openapi.json", headers=narrow.headers)


def test_generated_requests_are_answered_as_the_document_says(api, narrow):
    import schemathesis
    from schemathesis.checks import load_all_checks
    from schemathesis.core.parameters import ParameterLocation
    from schemathesis.specs.openapi import checks

    load_all_checks()
    asked = [
        schemathesis.checks.not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]
    count = 0
    for result in api.get_all_operations():
        operation = result.ok()

        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

            @hypothesis.settings(
                max_examples=PER_OPERATION,
                deadline=None,
                database=None,
                derandomize=PER_OPERATION < 50,
                suppress_health_check=list(hypothesis.HealthCheck),
                phases=[hypothesis.Phase.generate],
            )
            @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
            def ask(case):
                nonlocal count
                count += 1
                response = case.call(headers=narrow.headers)
                # Bodies that the document does not allow are refused; what is too large may be so unread, which
                # schemathesis takes for accepted.
                body = case.meta.components.get(ParameterLocation.BODY)
                wrong = body is not None and body.mode.is_negative and response.status_code != 413
                strict = [checks.negative_data_rejection] if wrong else []
                case.validate_response(response, checks=[*asked, *strict])

            # Operations without parameters and body cannot get an invalid request.
            with contextlib.suppress(hypothesis.errors.Unsatisfiable):
                ask()
    assert count >= 10 * PER_OPERATION
    assert not [line for line in narrow.lines() if line["level"] == "error"]
    print(count, "requests")  # noqa: T201  # seen with -s
