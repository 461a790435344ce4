"""The deciding rule: a table of all combinations of the six steps, and random rules compared with an independent model."""

from __future__ import annotations

import fnmatch
import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from greenroom.actors.consent.rules import (
    ORDER,
    BadRule,
    Permissions,
    Rule,
    RuleDecision,
    Verdict,
    covers,
    matches,
    may_begin,
)

STEPS = ["global deny", "server deny", "server ask", "server allow", "global ask", "global allow"]


PRESENT = pytest.mark.parametrize(
    "present", list(itertools.product((False, True), repeat=6)), ids=lambda bits: "".join("01"[bit] for bit in bits)
)


def rule(step: str, pattern: str = "push") -> Rule:
    scope, verdict = step.split()
    return Rule(verdict, pattern if scope == "server" else f"git:{pattern}", "git" if scope == "server" else None)  # type: ignore[arg-type]


def elicit_rule(step: str, other: str = "git") -> Rule:
    scope, verdict = step.split()
    return Rule(verdict, "Elicit" if scope == "server" else f"Elicit({other})", "git" if scope == "server" else None)  # type: ignore[arg-type]


@pytest.mark.row("CB-16")
@PRESENT
def test_the_first_step_that_says_something_decides(present: tuple[bool, ...]) -> None:
    there = [step for step, one in zip(STEPS, present, strict=True) if one]
    expected = there[0] if there else "default"

    for written in itertools.islice(itertools.permutations(there), 24):
        decided = Permissions(map(rule, written)).of_tool("git", "push")

        assert decided.step == expected
        assert decided.verdict == ("ask" if expected == "default" else expected.split()[1])


@pytest.mark.row("CB-13", "CB-16")
@pytest.mark.parametrize("whose", ["git", "*", "g?t"])
@PRESENT
def test_elicitation_rules_are_examined_in_the_same_order(present: tuple[bool, ...], whose: str) -> None:
    there = [step for step, one in zip(STEPS, present, strict=True) if one]
    expected = there[0] if there else "default"
    about_tools = [rule(step, "*") for step in STEPS]  # these rules must not matter

    for written in itertools.islice(itertools.permutations(there), 24):
        permissions = Permissions([*about_tools, *(elicit_rule(step, whose) for step in written)])

        decided = permissions.of_elicitation("git")
        assert decided.step == expected
        assert decided.verdict == ("ask" if expected == "default" else expected.split()[1])
        assert permissions.of_tool("git", "push").step == STEPS[0]  # and the other way round


@pytest.mark.row("CB-16")
@pytest.mark.parametrize("fillers", [0, 1, 7])
@pytest.mark.parametrize("place", ["before", "behind", "between"])
def test_calibans_bug_a_servers_allow_does_not_beat_a_global_deny_by_where_it_is_written(
    place: str, fillers: int
) -> None:
    """In caliban a server's allow once beat a global deny: all rules were in one list, which was split by position, and the server's part came first.

    The model groups rules by verdict and scope, so neither the position of a rule nor the number of other rules can matter.
    """
    deny, allow = Rule("deny", "git:push"), Rule("allow", "push", "git")
    more = [Rule(verdict, f"other{number}", "git") for number in range(fillers) for verdict in ("allow", "deny")]
    written = {
        "before": [allow, *more, deny],
        "behind": [deny, *more, allow],
        "between": [*more, allow, deny, *more],
    }[place]

    assert Permissions(written).of_tool("git", "push") == RuleDecision("deny", deny)
    asked, answered = Rule("deny", "Elicit(*)"), Rule("allow", "Elicit", "git")
    assert Permissions([answered, *written, asked]).of_elicitation("git") == RuleDecision("deny", asked)


@pytest.mark.row("CB-16", "CB-17")
def test_the_rule_that_decided_says_where_it_is_written() -> None:
    decided = Permissions([Rule("deny", "rm*", "files", "greenroom.toml:12")]).of_tool("files", "rmdir")

    assert str(decided) == "deny: deny 'rm*' of server files (greenroom.toml:12)"
    assert str(Permissions().of_tool("files", "rmdir")) == "ask: no rule matches"


@pytest.mark.row("CB-16")
@pytest.mark.parametrize(
    ("pattern", "server", "tool", "fits"),
    [
        ("*", "git", "push", True),
        ("push", "git", "push", True),
        ("push", "hub", "push", True),
        ("git:*", "git", "push", True),
        ("git:*", "hub", "push", False),
        ("*:push", "hub", "push", True),
        ("g?t:pu*", "git", "push", True),
        ("mcp__git__push", "git", "push", True),
        ("mcp__git__pu*", "git", "push", True),
        ("mcp__git", "git", "push", True),
        ("mcp__git", "hub", "push", False),
        ("mcp__git__repo_delete", "git", "repo.delete", True),
        ("mcp__git__repo.delete", "git", "repo.delete", True),
        ("mcp__git__repo_*", "git", "repo/delete", True),
        ("mcp__my__srv__rm", "my__srv", "rm", True),
        ("mcp__my__srv", "my__srv", "rm", True),
        ("mcp__my__srv", "my", "srv", True),
        ("mcp__a_b__rm", "a.b", "rm", True),
        ("PUSH", "git", "push", False),
        ("pus", "git", "push", False),
        ("Elicit(git)", "git", "push", False),
        ("[p]ush", "git", "push", False),
    ],
)
def test_global_patterns_match_servers_and_tools(pattern: str, server: str, tool: str, *, fits: bool) -> None:
    decided = Permissions([Rule("deny", pattern)]).of_tool(server, tool)

    assert (decided.verdict == "deny") is fits


@pytest.mark.row("CB-16")
@pytest.mark.parametrize(
    ("pattern", "server", "tool", "allowed"),
    [
        ("mcp__git__repo_delete", "git", "repo.delete", True),
        ("mcp__git__*", "git", "push", True),
        ("mcp__git", "git", "push", True),
        ("mcp__my__srv__rm", "my__srv", "rm", True),
        ("mcp__git__*", "git__evil", "push", False),
        ("mcp__git__pu*", "git__push", "rm", False),
        ("mcp__git__push", "git__push", "rm", False),
    ],
)
def test_an_allow_rule_with_claudes_name_applies_to_one_server(
    pattern: str, server: str, tool: str, *, allowed: bool
) -> None:
    decided = Permissions([Rule("allow", pattern)]).of_tool(server, tool)

    assert decided.verdict == ("allow" if allowed else "ask")


@pytest.mark.row("CB-16")
def test_a_rule_can_be_about_some_servers_only() -> None:
    mine = frozenset({"git"})
    permissions = Permissions(
        [Rule("allow", "*", only=mine), Rule("allow", "Elicit(*)", only=mine), Rule("allow", "log")]
    )

    assert permissions.of_tool("git", "push").verdict == "allow"
    assert permissions.of_tool("hub", "push").verdict == "ask"
    assert permissions.of_elicitation("git").verdict == "allow"
    assert permissions.of_elicitation("hub").verdict == "ask"
    assert permissions.of_tool("hub", "log").verdict == "allow"
    assert permissions.dead(["git", "hub"]) == []
    assert [each.rule.pattern for each in permissions.dead(["hub"])] == ["*", "Elicit(*)"]


def test_without_rules_the_default_verdict_applies() -> None:
    decided = Permissions(otherwise="allow").of_tool("git", "push")

    assert str(decided) == "allow: no file has rules"


@pytest.mark.row("CB-13")
@pytest.mark.parametrize(
    ("written", "verdict"),
    [
        ([], "ask"),
        ([Rule("allow", "Elicit(git)")], "allow"),
        ([Rule("allow", "Elicit(*)")], "allow"),
        ([Rule("allow", "Elicit(hub)")], "ask"),
        ([Rule("allow", "*")], "ask"),
        ([Rule("deny", "Elicit", "git")], "deny"),
        ([Rule("allow", "Elicit(git)", "git"), Rule("deny", "Elicit(*)")], "deny"),
        ([Rule("deny", "*", "git")], "ask"),
    ],
    ids=str,
)
def test_patterns_of_tools_do_not_apply_to_elicitation(written: list[Rule], verdict: Verdict) -> None:
    assert Permissions(written).of_elicitation("git").verdict == verdict


@pytest.mark.parametrize(
    ("verdict", "pattern", "server", "says"),
    [
        ("maybe", "push", None, "allow, ask or deny"),
        ("allow", "", None, "is not a pattern"),
        ("allow", " push", None, "is not a pattern"),
        ("allow", "x" * 301, None, "is not a pattern"),
        ("allow", "Elicit", None, "name the server"),
        ("allow", "Elicit(git", None, "not closed"),
        ("allow", "Elicit(hub)", "git", "names another server"),
    ],
)
def test_a_rule_that_says_nothing_is_refused_where_it_stands(
    verdict: Verdict, pattern: str, server: str | None, says: str
) -> None:
    with pytest.raises(BadRule, match=f"a.toml:3: .*{says}"):
        Rule(verdict, pattern, server, "a.toml:3")


def test_rules_that_can_never_decide_are_named() -> None:
    permissions = Permissions(
        [
            Rule("allow", "push", "gti", "a.toml:1"),
            Rule("allow", "log", "git", "a.toml:2"),
            Rule("deny", "hub:*", None, "a.toml:3"),
            Rule("deny", "lo*", "git", "a.toml:4"),
            Rule("ask", "hub:*", None, "a.toml:5"),
        ]
    )

    dead = {each.rule.where: str(each) for each in permissions.dead(["git", "hub"])}

    assert sorted(dead) == ["a.toml:1", "a.toml:2", "a.toml:5"]
    assert "no server called 'gti'" in dead["a.toml:1"]
    assert "deny 'lo*' of server git (a.toml:4) comes first" in dead["a.toml:2"]


# --- comparison with a model

names = st.sampled_from(["push", "pull", "log", "rm", "a", "ab"])
servers = st.sampled_from(["git", "hub"])
globs = st.sampled_from(["push", "p*", "*", "?", "a?", "*g", "r*m", "zz"])


@st.composite
def some_rule(draw: st.DrawFn) -> Rule:
    verdict: Verdict = draw(st.sampled_from(["allow", "ask", "deny"]))
    only = draw(st.sampled_from([None, frozenset({"git"}), frozenset({"git", "hub"})]))
    if draw(st.booleans()):
        if draw(st.booleans()):
            return Rule(verdict, f"Elicit({draw(st.sampled_from(['git', 'hub', '*', 'g*', '?it', 'zz']))})", only=only)
        home = draw(servers)
        return Rule(verdict, draw(st.sampled_from(["Elicit", f"Elicit({home})"])), home)
    if draw(st.booleans()):
        return Rule(verdict, draw(globs), draw(servers))
    whose = draw(st.sampled_from(["", "git:", "hub:", "*:", "mcp__git__"]))
    return Rule(verdict, whose + draw(globs), only=only)


def model(rules: list[Rule], server: str, tool: str | None) -> str:
    """The verdict of the model: sort the matching rules by their step. Without a tool it is about elicitation."""

    def fits(each: Rule) -> bool:
        if each.only is not None and server not in each.only:
            return False
        if each.pattern.startswith("Elicit") or tool is None:
            whose = each.pattern.removeprefix("Elicit").strip("()") or str(each.server)
            return tool is None and each.pattern.startswith("Elicit") and fnmatch.fnmatchcase(server, whose)
        if each.server is not None:
            return each.server == server and fnmatch.fnmatchcase(tool, each.pattern)
        if each.pattern.startswith("mcp__git__"):
            return server == "git" and fnmatch.fnmatchcase(tool, each.pattern[10:])
        whose, colon, what = each.pattern.rpartition(":")
        return (not colon or fnmatch.fnmatchcase(server, whose)) and fnmatch.fnmatchcase(tool, what)

    weight = {
        (True, "deny"): 0,
        (False, "deny"): 1,
        (False, "ask"): 2,
        (False, "allow"): 3,
        (True, "ask"): 4,
        (True, "allow"): 5,
    }
    fitting = sorted((weight[each.server is None, each.verdict], each.verdict) for each in rules if fits(each))
    return fitting[0][1] if fitting else "ask"


@pytest.mark.row("CB-16")
@given(st.lists(some_rule(), max_size=8), servers, names)
def test_random_rules_decide_as_the_model_says(rules: list[Rule], server: str, tool: str) -> None:
    assert Permissions(rules).of_tool(server, tool).verdict == model(rules, server, tool)
    assert Permissions(rules).of_elicitation(server).verdict == model(rules, server, None)


@given(st.lists(some_rule(), max_size=6), st.lists(servers, min_size=1))
def test_a_rule_that_is_called_dead_changes_nothing(rules: list[Rule], known: list[str]) -> None:
    permissions = Permissions(rules)
    gone = [each.rule for each in permissions.dead(known)]
    left = [each for each in rules if each not in gone]
    assume(all(rules.count(each) == 1 for each in gone))  # of two equal rules, one is dead and the other decides
    for server in known:
        for tool in ("push", "pull", "log", "rm", "a", "ab"):
            assert Permissions(left).of_tool(server, tool).verdict == permissions.of_tool(server, tool).verdict
        assert Permissions(left).of_elicitation(server).verdict == permissions.of_elicitation(server).verdict


patterns = st.text("ab*?", max_size=8)
words = st.text("ab", max_size=8)
odd = st.text("ab*?[]!-\\.^$(|)\n", max_size=8)


def means(pattern: str, word: str) -> bool:
    """The same function, in the simplest and slowest form."""
    if not pattern:
        return not word
    if pattern[0] == "*":
        return any(means(pattern[1:], word[taken:]) for taken in range(len(word) + 1))
    return bool(word) and pattern[0] in ("?", word[0]) and means(pattern[1:], word[1:])


@given(patterns, words)
def test_a_pattern_matches_what_the_standard_library_says(pattern: str, word: str) -> None:
    assert matches(pattern, word) is fnmatch.fnmatchcase(word, pattern)


@given(patterns | odd, words | odd)
def test_everything_but_stars_and_question_marks_is_itself(pattern: str, word: str) -> None:
    assert matches(pattern, word) is means(pattern, word)
    assert matches(word.replace("*", "?"), word)


@given(patterns, patterns, words)
def test_a_covering_pattern_matches_everything_the_other_does(wide: str, narrow: str, word: str) -> None:
    if covers(wide, narrow) and matches(narrow, word):
        assert matches(wide, word)


@given(patterns, words, words)
def test_may_begin_accepts_prefixes_of_matches(pattern: str, beginning: str, rest: str) -> None:
    if matches(pattern, beginning + rest):
        assert may_begin(pattern, beginning)
    elif not may_begin(pattern, beginning):
        assert not any(
            matches(pattern, beginning + "".join(end)) for n in range(4) for end in itertools.product("ab", repeat=n)
        )


def test_a_long_pattern_takes_no_longer_than_its_length_says() -> None:
    assert not matches("*a" * 140 + "b", "a" * 20_000)


def test_the_order_is_written_once() -> None:
    assert [f"{scope} {verdict}" for scope, verdict in ORDER] == STEPS
