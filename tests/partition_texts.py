"""Texts that a Delta log may have for a value of a partition column: 60 and more odd ones for every type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

KERNEL, DELTA_RS = "Delta Kernel", "delta-rs"


@dataclass(frozen=True, kw_only=True)
class Column:
    """Texts of a partition column, and values to compare it with."""

    alike: Sequence[str | None]  # every reader that takes one for a value takes it for the same
    ambiguous: Sequence[str] = ()
    taken: Sequence[str] = ()  # those of the ambiguous texts that both readers take for a value
    bounds: Sequence[str]
    duckdb: str  # a value in its SQL, `{}` being the text
    datafusion: str = ""  # of delta-rs, where it is another
    failing: Sequence[str] = ()  # readers that make nothing of each of the texts in the log alone either


def words(text: str) -> list[str]:
    """The parts of a text between bars; an empty one is an empty text."""
    return text.split("|")


def joined(*parts: Iterable[str]) -> list[str]:
    """Every combination of one text of each part, once."""
    return list(dict.fromkeys("".join(each) for each in product(*parts)))


NO_NUMBERS = words(
    "\t1|1\n|1 | 1|\u00a01|\ufeff1|1\u200b|1\x00|\uff11|\u0661|\u00bd|\u2460|\U0001d7d9|\uff0b1|\u22121|--1|+-1|- 1|+|-"
    "|.|1 2|1,0|1.2.3|1;|1_0|1/1|1%|$1|(1)|%31|\\u0031|'1'|\"1\"|0b1|0o7|0x10|0x1p3|e1|1e|1e+|1e1.5|one|I|null|NULL"
    "|None|true| |__HIVE_DEFAULT_PARTITION__"
)
NO_WHOLE = words("1.0|1.|.5|-1.0|1e0|1e2|1E2|1e-1|1L|1l|1f|NaN|inf|-inf")
MANY_DIGITS = words("00000000000000000001|000000000000000000000000000000|-000000000000000000005")
WHOLE = [
    *joined(["", "+", "-"], ["", "0", "00"], words("0|1|2|7|9|10|99")),
    *joined(["", "-"], ["0" * 18], words("1|5")),
    "",
    None,
]


def whole(bits: int) -> Column:
    """Of an integer type."""
    end = 1 << (bits - 1)
    additions_over = [end, -end - 1, 2 * end, 10 * end, -10 * end, 1 << 63, -(1 << 63) - 1, 10**30]
    return Column(
        alike=[*WHOLE, f"{end - 1}", f"+{end - 1}", f"{-end}", f"{end - 2}", f"{1 - end}"],
        ambiguous=[*MANY_DIGITS, *NO_NUMBERS, *NO_WHOLE, *map(str, additions_over)],
        taken=MANY_DIGITS,
        bounds=[f"{end - 1}"],
        duckdb={64: "'{}'::BIGINT", 32: "'{}'::INTEGER", 16: "'{}'::SMALLINT", 8: "'{}'::TINYINT"}[bits],
    )


FLOATING = [
    *joined(["", "+", "-"], words("inf|INF|Inf|iNf|infinity|Infinity|INFINITY|iNFINITY")),
    *words(
        "nan|NaN|NAN|nAn|1|+1|-1|1.|-1.|.5|-.5|+.5|1.0|-1.0|0|-0|+0.0|-0.0|00|007|-007|00.5|0e0|0E-999|0e999|1e0"
    ),
    *words("1e3|1E3|1e+3|1E+03|1.e2|+.5E+1|1.5E-7|1.5e-07|1e22|1e23|1e400|-1e400|1e-400|-1e-400|1e9999"),
    *words("4.9E-324|2.2250738585072014E-308|1.7976931348623157E308|1.7976931348623159E308"),
    *words("0.1|0.30000000000000004|9007199254740993|123456789012345678901234567890"),
    *words("3.4028235E38|3.4e39|1e-45|1e-50|16777217|1.00000017881393432617187499"),
    "0" * 50 + "1.5",
    "0." + "0" * 50 + "1",
    "",
    None,
]
SIGNED_NAN = words("-nan|+NaN|+nan|1e12345")
NO_FLOATING = [
    *SIGNED_NAN,
    *NO_NUMBERS,
    *words(
        "1d|1f|1D|1.0d|1.5E-7L|inf |infinit|infinityy|inff|in|nan(1)|NaN0|Na N|1.#INF|\u221e|..5|.e1|1 e3|1E--3"
    ),
]
TIMES = [
    *joined(
        ["2024-02-29 12:30:00"],
        words(
            "|.5|.50|.500|.123|.1234|.12345|.123456|.1234560|.123456000|.0|.000000|.000001|.999999|.999999000"
        ),
    ),
    *joined(
        words("1700-01-01|1752-09-02|1900-02-28|1969-12-31|1970-01-01|2000-02-29|2016-12-31|2200-01-01"),
        words(" 00:00:00| 23:59:59| 12:30:00.000001| 23:59:59.999999"),
    ),
    *words(
        "1677-09-22 00:12:44|2262-04-10 23:47:16|1901-12-13 20:45:52|1883-11-18 12:03:58|2106-02-07 06:28:16"
    ),
    *words("2038-01-19 03:14:07|2038-01-19 03:14:08|2011-12-30 12:00:00|2001-09-09 01:46:40"),
    *words("2024-03-10 02:30:00|2024-03-31 02:30:00|2024-10-27 02:30:00|2024-11-03 01:30:00|"),
    None,
]
FAR_TIMES = [
    *joined(
        words(
            "0001-01-01|0004-02-29|0099-12-31|0100-01-01|0400-02-29|0999-12-31|1500-02-28|1582-10-04|1582-10-10"
        ),
        words(" 00:00:00| 23:59:59.999999"),
    ),
    *joined(
        words("1582-10-15|1600-02-29|1677-09-20|2262-04-12|2300-02-28|2400-02-29|3000-01-01|9999-12-31"),
        words(" 00:00:00| 23:59:59.999999"),
    ),
    *words("0000-01-01 00:00:00|0000-02-29 00:00:00|0000-12-31 23:59:59.999999|0001-01-01 00:00:00.000001"),
    *words("1677-09-21 00:12:43.145224|1677-09-21 00:12:43.145225|2262-04-11 23:47:16.854775"),
    *words("2262-04-11 23:47:16.854776|2262-04-11 23:47:17"),
    None,
]
# delta-rs takes one digit for no number of its own, and no year with a sign.
TIMES_OF_KERNEL = [
    *words(
        "2024-2-9 1:2:3|2024-2-9 1:2:3.4|2024-02-9 01:2:03|2024-02-29 12:30:0|2024-02-29 0:0:0|1970-1-1 0:0:0"
    ),
    *words("+2024-02-29 12:30:00|+9999-12-31 23:59:59|9999-1-1 1:1:1|+10109-7-8 1:2:3.4"),
    *joined(
        words("-0001-12-31|-0004-02-29|-0221-09-04|-0400-02-29|-9999-01-01|-10000-01-01|-262143-01-01"),
        words(" 00:00:00| 12:00:00.000005"),
    ),
    *joined(
        words("+10000-01-01|+10109-07-08|+99999-12-31|+262142-12-31"), words(" 00:00:00| 23:59:59.999999")
    ),
    None,
]
TIMES_OF_NEITHER = words(
    "10000-01-01 00:00:00|02024-01-01 00:00:00|+294247-01-10 04:00:54.775807|-290308-12-21 19:59:05.224192"
)
IN_UTC = [
    *joined(
        words("2024-02-29|1677-09-22"),
        words("T|t| "),
        words("23:45:59|23:45:59.123456000"),
        words("Z|z|+00:00|-00:00|+0000"),
    ),
    *words("1969-12-31T23:59:59.999999-0000|2024-02-29T12:30:00.0+0000"),
    None,
]
CLOCKS = words(
    "2024-02-29 23:59:60|2024-02-29 12:30:00.1234567|2024-02-29 12:30:00.123456789|2024-02-29 12:30:00.0000001"
)
NO_TIMES = [
    *CLOCKS,
    *words("2024-02-29 12:30|2024-02-29 12|2024-02-29 |2024-02-29T|2024-02-29 24:00:00|2024-02-29 23:60:00"),
    *words(
        "2024-02-30 00:00:00|2023-02-29 00:00:00|2024-13-01 00:00:00|2024-00-10 00:00:00|2024-01-00 00:00:00"
    ),
    *words("2024-02-29 25:00:00|12:30:00| 2024-02-29 12:30:00|2024-02-29 12:30:00 |2024-02-29  12:30:00"),
    *words("\t2024-02-29 12:30:00|2024-02-29 12:30:00\n|2024-02-29\u00a012:30:00|2024-02-29 12:30:00\x00"),
    *words(
        "2024-02-29 12:30:00.|2024-02-29 12:30:00,5|2024-02-29_12:30:00|2024/02/29 12:30:00|2024-02-29 12.30.00"
    ),
    *words("20240229T123000|20240229 123000|2024-060 12:30:00|2024-W09-4 12:30:00|2024-02 12:30:00"),
    *words("24-02-29 12:30:00|1-1-1 1:1:1|2024-02-29 012:30:00|2024-02-29 12:030:00|2024-02-29 12:30:000"),
    *words(
        "2024-02-29 +1:30:00|2024-02-29 12:30:-1|2024-02-29 12:3 0:00|2024-02-29 12:30:00 AM|0x7e8-02-29 12:30:00"
    ),
    *words(
        "1709209800|1709209800000|1709209800.5|-1|0|now|today|epoch|infinity|-infinity|null|1000000-01-01 00:00:00"
    ),
    *words(
        "\uff12024-02-29 12:30:00|'2024-02-29 12:30:00'|2024-02-29 12:30:00 (BC)|Thu Feb 29 12:30:00 2024"
    ),
    *words("Thu, 29 Feb 2024 12:30:00 GMT|+294247-01-10 04:00:54.775808|-290308-12-21 19:59:05.224191"),
]
AWAY = words(
    "2024-02-29T12:30:00+02:00|2024-02-29 12:30:00-0230|2024-02-29 12:30:00 UTC|2024-02-29 12:30:00UTC|"
    "2024-02-29T12:30:00+00:01|2024-02-29T12:30:00 +00:00|2024-02-29T12:30:00+14:00|2024-02-29T12:30:00-12:00"
)
NO_ZONES = words(
    "2024-02-29T12:30:00+02|2024-02-29T12:30:00+2|2024-02-29T12:30:00+2:00|2024-02-29T12:30:00+25:00|2024-02-29T12:30Z|"
    "2024-02-29T12:30:00+23:60|2024-02-29T12:30:00 Z|2024-02-29T12:30:00ZZ|2024-02-29T12:30:00[UTC]"
    "|2024-02-29 12:30:00 CET|2024-02-29T12:30:00+00:00:00|2024-02-29 12:30:00 Europe/Paris"
    "|2024-02-29T12:30:00\u221202:00"
)
TIME_BOUNDS = ["2024-02-29 12:30:00.1234"]
FAR_BOUNDS = words("1650-01-01 00:00:00|9999-12-31 23:59:59.999999")
ZONED = {
    "duckdb": "'{}+00'::TIMESTAMPTZ",
    "datafusion": "arrow_cast('{}', 'Timestamp(Microsecond, Some(\"UTC\"))')",
}
LOCAL = {"duckdb": "'{}'::TIMESTAMP", "datafusion": "arrow_cast('{}', 'Timestamp(Microsecond, None)')"}
BOTH = (KERNEL, DELTA_RS)


def decimal(precision: int, scale: int, *, bounds: Sequence[str]) -> list[tuple[str, Column]]:
    """Texts of exactly the type's scale, which is all that Kernel takes; and others, which Spark takes too."""
    before = precision - scale
    one, most = "1" if before else "0", "9" * before or "0"
    point = "." if scale else ""
    exact = [
        *joined(
            ["", "+", "-"], ["", "0", "000"], [f"{one}{point}{'5' * scale}", f"{most}{point}{'9' * scale}"]
        ),
        *joined(["", "+", "-"], [f"0{point}{'0' * scale}", f"{one}{point}{'12'.ljust(scale, '0')[:scale]}"]),
        *joined(["", "-"], words("00|0") if scale else ["0000"], [f"{point}{'3' * scale}"]),
        *(joined(["", "+", "-"], [f".{'7' * scale}", f".{'0' * (scale - 1)}1"]) if scale else []),
        *joined(
            ["", "-"],
            words("0|3|25"),
            [f"E-{scale}", f"e-{scale}", f"E-00{scale}"] if scale else ["E0", "e0"],
        ),
        *joined(["", "-"], [f"{'1' * precision}E-{scale}" if scale else "1" * precision]),
        "",
        None,
    ]
    other = [
        *joined(["", "+", "-"], words("0.|.0|0E1|0e400|0." + "0" * (scale + 1))),
        *joined(
            ["", "-"], [f"{most}.{'9' * scale}0", f"{most}.{'9' * scale}000", f"{one}.{'0' * (scale + 1)}"]
        ),
        *(joined(["", "+", "-"], words("1E2|1e+2|12e1|1.5e02|.01E5"), [""]) if before > 3 else []),
        *(joined(["", "-"], [f"1E{before - 1}", f"1e+{before - 1}"]) if before > 1 else []),
        *(joined(["", "-"], words("5E-1|.5|0.5|00.5|0.50")) if scale > 2 else []),
    ]
    additions_over = [
        *joined(["", "-"], [f"1{'0' * before}", f"1{'0' * before}.0", f"1E{before}", f"9{'9' * before}"]),
        *joined(["", "-"], [f"0.{'0' * scale}1", f"1E-{scale + 1}", f"{most}.{'9' * scale}1"]),
        *words("1e400|1e-400|1e9999|1e12345|NaN|nan|inf|-inf|Infinity|1d|1f|1.0bd|1e5.0|1E--1|+.|,5"),
    ]
    kind, sql = f"decimal({precision},{scale})", f"'{{}}'::DECIMAL({precision},{scale})"
    return [
        (kind, Column(alike=exact, ambiguous=[*additions_over, *NO_NUMBERS], bounds=bounds, duckdb=sql)),
        (kind, Column(alike=other, bounds=bounds, duckdb=sql, failing=BOTH)),
    ]


DAYS = [
    *words(
        "2024-02-29|2024-1-5|2024-01-05|2024-1-05|2024-01-5|2024-12-1|2024-12-31|+2024-01-06|+2024-1-6|2000-02-29"
    ),
    *words(
        "1900-02-28|1582-10-04|1582-10-05|1582-10-14|1582-10-15|1752-09-03|1883-11-18|1918-02-14|2011-12-30"
    ),
    *words(
        "1970-01-01|1969-12-31|1970-1-1|2038-01-19|2038-01-20|1901-12-13|1677-09-21|1677-09-22|2262-04-11"
    ),
    *words(
        "2262-04-12|1600-02-29|1000-01-01|0999-12-31|0400-02-29|0099-01-01|0004-02-29|0001-01-01|0001-1-1"
    ),
    *words("0000-01-01|0000-12-31|-0000-01-01|+0000-01-01|-00001-01-01|-0001-01-01|-0001-12-31|-0004-02-29"),
    *words(
        "-0221-09-04|-0400-02-29|-9999-01-01|-10000-01-01|-262143-01-01|+00001-01-01|+02024-01-01|9999-12-31"
    ),
    *words(
        "+9999-12-31|+10000-01-01|+10109-07-08|+99999-12-31|+262142-12-31|2100-02-28|2400-02-29|1800-1-31|"
    ),
    None,
]
DAYS_OF_NEITHER = words("10000-01-01|10109-7-8|99999-01-01|02024-01-01|002024-01-01")
NO_DAYS = words(
    "24-01-01|024-01-01|1-1-1| 2024-01-01|2024-01-01 |\t2024-01-01|2024-01-01\n|2024-01-01\x00|2024- 1-05|2024_01_01|"
    "2024-02-30|2023-02-29|1900-02-29|2024-04-31|2024-13-01|2024-00-01|2024-01-00|2024-01-32|2024-001-01|2024-01-001|"
    "20240101|2024/01/01|2024.01.01|01-02-2024|01/02/2024|2024-01|2024|2024-01-|2024-01-01-|2024-1-5-1|2024-W01-1|2024-060|"
    "2024-01-01 00:00:00|2024-01-01T00:00:00|2024-01-01T|2024-01-01Z|2024-01-01+01:00|19782|-1|0|today|now|epoch|null|"
    "infinity|-infinity|Jan 1 2024|2024-Jan-01|\uff12024-01-01|\u0662\u0660\u0662\u0664-01-01|2024\u201001\u201001|"
    "2024\u221201\u221201|--2024-01-01|+-2024-01-01|2024--01-01|2024-+1-01|2024-01-+1|0x7E8-01-01|'2024-01-01'|"
    "1000000-01-01|+5881580-07-11|+5881580-07-12|-5877641-06-23|2024-01-01 (BC)"
)
TRUTHS = [
    *joined(*((letter, letter.upper()) for letter in "true")),
    *joined(*((letter, letter.upper()) for letter in "false")),
    "",
    None,
]
NO_TRUTHS = words(
    "t|f|T|F|y|n|Y|N|yes|no|YES|NO|on|off|ON|OFF|1|0|-1|01|1.0|2|0x1|1b|#t|.true.|!false|not true|true false|t.rue"
    "|tr ue| true|true |\ttrue|true\n|true\u00a0|true\x00|\ufefftrue|truee|tru|fals|falsee|'true'|\"true\"|TRUE;|\u2713"
    "|\uff54\uff52\uff55\uff45|tru\u0435|FAL\u017fE|fal\u0455e|null|NULL|none|NaN|enabled|wahr|oui|vrai|+| |"
    "__HIVE_DEFAULT_PARTITION__"
)
SIGNS = words(
    "a|A|b|aa|aaa| |  |a | a|\t|a\n|\r\n|\x00|a\x00b|\x01|\x1f|\x7f|\x80|\x85|\u00a0|é|e\u0301|\u00df|ss|\u0130|i\u0307"
    "|\u0131|漢字|العربية|\u200b|\u2028|\u202e|\ud7ff|\ue000|\ufeff|\uff0f|\ufffd|\uffff|\U00010000|\U0001f600|\U0010ffff|"
    "null|NULL|None|NaN|inf|true|1|01|1.0|2024-01-01|__HIVE_DEFAULT_PARTITION__|-|+|.|..|/|\\|\\\\|\\u0041|\\x01|%|%%|%41"
    "|a%2Fb|a/b|a=b|p=1|'|''|\"|`|;|--|$1|{}|[]|*|?|#|&|<|>|~|^|:"
)
TEXTS = [*SIGNS, "x" * 31, "x" * 32, "x" * 33, "x" * 5000, "\x7f" * 32, "\U0010ffff" * 40, None]
KINDS: Final[Sequence[tuple[str, Column]]] = (
    (
        "double",
        Column(
            alike=FLOATING,
            ambiguous=NO_FLOATING,
            taken=SIGNED_NAN,
            bounds=words("5|nan|-inf"),
            duckdb="'{}'::DOUBLE",
        ),
    ),
    (
        "float",
        Column(
            alike=FLOATING,
            ambiguous=NO_FLOATING,
            taken=SIGNED_NAN,
            bounds=words("nan|1.0000001"),
            duckdb="'{}'::FLOAT",
        ),
    ),
    ("long", whole(64)),
    ("integer", whole(32)),
    ("short", whole(16)),
    ("byte", whole(8)),
    *decimal(10, 2, bounds=["-1.55"]),
    *decimal(9, 3, bounds=["1.555"]),
    *decimal(38, 0, bounds=["1" * 38]),
    *decimal(38, 38, bounds=["0." + "5" * 38]),
    (
        "boolean",
        Column(alike=TRUTHS, ambiguous=NO_TRUTHS, bounds=["true"], duckdb="{}"),
    ),
    (
        "date",
        Column(
            alike=DAYS,
            ambiguous=NO_DAYS,
            bounds=words("2024-01-05|9999-12-31"),
            duckdb="'{}'::DATE",
        ),
    ),
    ("date", Column(alike=DAYS_OF_NEITHER, bounds=["2024-01-01"], duckdb="'{}'::DATE", failing=BOTH)),
    (
        "timestamp",
        Column(
            alike=TIMES,
            ambiguous=[*NO_TIMES, *AWAY, *NO_ZONES],
            taken=[*CLOCKS, *AWAY],
            bounds=TIME_BOUNDS,
            **ZONED,
        ),
    ),
    ("timestamp", Column(alike=IN_UTC, bounds=TIME_BOUNDS, **ZONED)),
    ("timestamp", Column(alike=FAR_TIMES, bounds=FAR_BOUNDS, **ZONED)),
    ("timestamp", Column(alike=TIMES_OF_KERNEL, bounds=FAR_BOUNDS, failing=[DELTA_RS], **ZONED)),
    (
        "timestamp",
        Column(
            alike=[*TIMES_OF_NEITHER, *words("2024-02-29|2024-02-29T12:30:00")],
            bounds=TIME_BOUNDS,
            failing=BOTH,
            **ZONED,
        ),
    ),
    (
        "timestamp_ntz",
        Column(
            alike=TIMES,
            ambiguous=[*NO_TIMES, *AWAY, *NO_ZONES, *filter(None, IN_UTC)],
            taken=CLOCKS,
            bounds=TIME_BOUNDS,
            **LOCAL,
        ),
    ),
    ("timestamp_ntz", Column(alike=FAR_TIMES, bounds=FAR_BOUNDS, **LOCAL)),
    ("timestamp_ntz", Column(alike=TIMES_OF_KERNEL, bounds=FAR_BOUNDS, failing=[DELTA_RS], **LOCAL)),
    ("timestamp_ntz", Column(alike=TIMES_OF_NEITHER, bounds=TIME_BOUNDS, failing=BOTH, **LOCAL)),
    ("string", Column(alike=TEXTS, ambiguous=[""], taken=[""], bounds=["é"], duckdb="'{}'")),
    (
        "binary",
        Column(
            alike=TEXTS,
            ambiguous=[""],
            taken=[""],
            bounds=["01"],
            duckdb="unhex('{}')",
            datafusion="X'{}'",
        ),
    ),
)
