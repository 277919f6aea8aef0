"""What a policy file has for a table, held against its documentation taken word by word."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from iceberg_cli.fleet.policy_file import parse_policy

PATTERNS = ("prod", "prod.a", "prod.a.*", "prod.*.t", "prod.a.t", "/wh/**", "/wh/a/*", "s3://lake/*")
NAMES = ("prod.a.t", "prod.a.u", "prod.b.t", "/wh/t", "/wh/a/t", "s3://lake/t", "dev.a.t")
MEANT = {
    "prod": {"prod.a.t", "prod.a.u", "prod.b.t"},
    "prod.a": {"prod.a.t", "prod.a.u"},
    "prod.a.*": {"prod.a.t", "prod.a.u"},
    "prod.*.t": {"prod.a.t", "prod.b.t"},
    "prod.a.t": {"prod.a.t"},
    "/wh/**": {"/wh/t", "/wh/a/t"},
    "/wh/a/*": {"/wh/a/t"},
    "s3://lake/*": {"s3://lake/t"},
}
OPTIONS = st.fixed_dictionaries(
    {}, optional={"when": st.sampled_from(["due", "always", "never"]), "min-files": st.integers(1, 9)}
)
VERBS = st.fixed_dictionaries(
    {}, optional={"merge-dvs": OPTIONS, "assign-row-ids": st.just({"batch-size": 5})}
)
ENTRIES = st.lists(
    st.fixed_dictionaries(
        {"match": st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2), "verbs": VERBS},
        optional={
            "except": st.lists(st.sampled_from(PATTERNS), max_size=1),
            "maintain": st.booleans(),
            "unsafe": st.sampled_from([[], ["short-retention"]]),
        },
    ),
    min_size=1,
    max_size=4,
)


def lines(content: dict[str, Any]) -> list[str]:
    """TOML of an entry."""
    found = [f"{key} = {str(value).lower()}" for key, value in content.items() if key != "verbs"]
    for verb, values in content["verbs"].items():
        inner = ", ".join(f"{key} = {value!r}" for key, value in values.items())
        found.append(f"{verb} = {{ {inner} }}")
    return found


def is_about(entry: dict[str, Any], names: list[str]) -> bool:
    """It matches one of the names and excepts none."""
    matched = any(name in MEANT[pattern] for pattern in entry["match"] for name in names)
    excepted = any(name in MEANT[pattern] for pattern in entry.get("except", []) for name in names)
    return matched and not excepted


def is_held(entries: list[dict[str, Any]], names: list[str]) -> bool:
    """One of the names is: the last entry for that name alone says so, of those that say no unless they are lifted by
    one that is about the table by all of its names."""
    for name in names:
        held = False
        for entry in entries:
            if entry.get("maintain") is False and is_about(entry, [name]):
                held = True
            if entry.get("maintain") is True and is_about(entry, [name]) and is_about(entry, names):
                held = False
        if held:
            return True
    return False


@given(VERBS, ENTRIES, st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
def test_of_a_table(defaults: dict[str, Any], entries: list[dict[str, Any]], names: list[str]) -> None:
    text = ["version = 1", "[defaults]", *lines({"verbs": defaults})]
    for entry in entries:
        text += ["[[tables]]", *lines(entry)]
    policy = parse_policy("policy.toml", "\n".join(text).encode())
    found = policy.of_table(names)
    about = [entry for entry in entries if is_about(entry, names)]
    held = is_held(entries, names)
    assert (found is None) == (not about and not held)
    if found is None:
        return
    assert found.maintain is not held
    said = [entry["unsafe"] for entry in about if "unsafe" in entry]
    assert found.unsafe == frozenset(said[-1] if said else [])
    named = {verb for entry in about for verb in entry["verbs"]} | (set(defaults) - {"assign-row-ids"})
    assert set(found.verbs) == named
    for verb, own in found.verbs.items():
        values: dict[str, Any] = {}
        for layer in (defaults, *(entry["verbs"] for entry in about)):
            values |= layer.get(verb, {})
        assert own.when == values.pop("when", "due")
        assert own.given == {f"--{key}": value for key, value in values.items()}
    missed = [
        p for p in dict.fromkeys(p for entry in entries for p in entry["match"]) if not MEANT[p] & set(names)
    ]
    assert list(policy.unmatched(names)) == missed
