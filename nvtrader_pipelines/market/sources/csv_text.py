"""Line-by-line CSV splitting, so that a broken line never shifts or swallows its neighbors."""

from dataclasses import dataclass

import polars as pl

from nvtrader_pipelines.market.sources.delivery import UnreadableFile

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # replaces bytes that are not UTF-8
SEPARATORS = (",", ";", "\t")
MAX_HEADER = 1 << 20  # characters of the header line
MAX_COLUMNS = 10_000  # a wide table has six per symbol
_ADDRESS = r"^https?://\S+$"  # of the vendor, above the header, as CryptoDataDownload writes it
_QUOTED = '"(?:[^"]|"")*"'


@dataclass(frozen=True)
class CsvText:
    """Non-blank lines of a file, numbered from 1 as in an editor."""

    lines: pl.DataFrame  # line, text
    separator: str

    def header(self, n_rows: int = 1) -> list[list[str]]:
        """First `n_rows` lines as lists of fields."""
        head = self.lines.head(n_rows)
        rows, broken = split_fields(head, self.width, self.separator)
        if len(broken):
            return [self.lines["text"][0].split(self.separator)]
        return [["" if cell is None else cell for cell in row[1:]] for row in rows.rows()]

    @property
    def width(self) -> int:
        """Number of fields in the first line."""
        return int(self.lines.head(1).select(_count_fields(self.separator)).item())

    def body(self, header_rows: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Split the rows after the header, see `split_fields`."""
        return split_fields(self.lines.slice(header_rows), self.width, self.separator)


def read_csv_text(content: bytes) -> CsvText:
    """Read the numbered lines of a UTF-8 file and its separator (comma, semicolon or tab).

    Raises:
        UnreadableFile: if the file is empty or its header is not UTF-8. Other bytes in later lines become
            replacement characters, for which only the row is refused.
    """
    text = content.decode(errors="replace").replace("\ufeff", "").replace("\r\n", "\n").replace("\r", "\n")
    lines = pl.DataFrame({"text": text.split("\n")}, schema={"text": pl.String}).with_row_index("line", offset=1)
    lines = lines.with_columns(pl.col("line").cast(pl.Int64)).filter(pl.col("text").str.strip_chars() != "")
    lines = lines.filter((pl.col("line") > 1) | ~pl.col("text").str.contains(_ADDRESS))
    if lines.is_empty():
        raise UnreadableFile("empty_file", "the file is empty; deliver it again with a header and rows")
    header = lines["text"][0]
    if REPLACEMENT in header or "\0" in header:
        raise UnreadableFile("wrong_encoding", "the file is not UTF-8 text; save it as UTF-8 and deliver it again")
    text = CsvText(lines, max(SEPARATORS, key=header.count))
    if len(header) > MAX_HEADER or text.width > MAX_COLUMNS:
        raise UnreadableFile(
            "large_header",
            f"a header must have at most {MAX_HEADER:,} characters and {MAX_COLUMNS:,} columns, but has "
            f"{len(header):,} and {text.width:,}; deliver a row per bar, or fewer symbols per file",
        )
    return text


def split_fields(lines: pl.DataFrame, width: int, separator: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split lines of `width` fields into columns `line, "0", "1", …`; return others as they are."""
    field = rf'(?:{_QUOTED}|[^"{separator}]*)'  # polars loses count of lines at a quote inside an unquoted field
    is_split = pl.col("text").str.contains(rf"^{field}(?:{separator}{field})*$")
    sound = is_split & (_count_fields(separator) == width)
    good, broken = lines.filter(sound), lines.filter(~sound)
    names = [str(k) for k in range(width)]
    if good.is_empty():
        return pl.DataFrame(schema={"line": pl.Int64, **dict.fromkeys(names, pl.String)}), broken
    fields = pl.read_csv(
        "\n".join(good["text"]).encode(), has_header=False, infer_schema=False, separator=separator, new_columns=names
    )
    return pl.concat([good.select("line"), fields], how="horizontal"), broken


def _count_fields(separator: str) -> pl.Expr:
    unquoted = pl.col("text").str.replace_all(rf"(^|{separator}){_QUOTED}", "${1}")
    return unquoted.str.count_matches(separator, literal=True) + 1
