"""The words and signs of a filter, made ready for sqlglot's parser.

Whatever DynamoDB has no counterpart for is refused here, where its place in the text is known. The rest goes on such
that sqlglot reads every name as a quoted name, reserved word or not, and keeps every number's text.
"""

import difflib

from sqlglot import tokenize
from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType

from bulkexec.errors import BadFilter
from bulkexec.where.tree import Value, is_number, quoted

FUNCTIONS = {
    "attribute_exists": "attribute_exists(path)",
    "attribute_not_exists": "attribute_not_exists(path)",
    "attribute_type": "attribute_type(path, 'S')",
    "begins_with": "begins_with(path, 'x')",
    "contains": "contains(path, 'x')",
    "size": "size(path) > 10",
}
MAX_NESTING = 32  # of documents (a limit of DynamoDB); parentheses and NOT are held to the same
MAX_TOKENS = 5000  # far more than 4 KB of expression can hold

_QUOTES = "'\"\u00ab\u00bb\u00b4\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f"  # straight and typographic
_AS_STORED = "and DynamoDB compares text exactly as it is stored"
_ONE_ITEM = "and a filter sees one item at a time"
_NO_FUNCTION = {
    **dict.fromkeys(("count", "sum", "avg", "min", "max"), f"is an aggregate over many items, {_ONE_ITEM}"),
    **dict.fromkeys(("cast", "try_cast", "convert"), "changes types, and DynamoDB compares values as they are stored"),
    **dict.fromkeys(("exists", "any", "all", "some"), f"takes a subquery, {_ONE_ITEM}"),
    **dict.fromkeys(("lower", "upper", "trim"), f"changes text, {_AS_STORED}"),
}
_ALSO_CALLED = {
    **dict.fromkeys(("length", "len", "char_length", "cardinality"), "size"),
    **dict.fromkeys(("starts_with", "startswith"), "begins_with"),
    "exists": "attribute_exists",
}
_AS_IT_IS = "begins_with(path, 'x') and contains(path, 'x') take every character as it is"
_NO_OPERATOR = {
    "ILIKE": (f"ILIKE ignores case, {_AS_STORED}", _AS_IT_IS),
    "ESCAPE": ("LIKE 'x%' and LIKE '%x%' can be pushed down, ESCAPE cannot", _AS_IT_IS),
    **dict.fromkeys(
        ("RLIKE", "REGEXP", "SIMILAR", "SIMILAR TO", "GLOB", "~", "!~", "~*"),
        ("DynamoDB has no regular expressions", _AS_IT_IS),
    ),
    **dict.fromkeys(
        ("+", "-", "*", "/", "%", "||", "&", "|", "^", "DIV", "MOD"),
        ("DynamoDB does no arithmetic in filters", "work the value out beforehand and compare with the result"),
    ),
    **dict.fromkeys(
        ("?", ":", "#", "@"), ("placeholders belong to --filter-expression", "write the name or value itself")
    ),
    **dict.fromkeys(("->", "->>"), ("nested attributes are not reached with arrows", "write map.name or list[0]")),
    "::": ("DynamoDB changes no types", "compare with a literal of the type that is stored"),
    "`": (
        "backquotes are not taken",
        'a name with other than letters, digits and _ stands in double quotes: "my-name"',
    ),
    ";": (
        "--where takes one condition, not several statements",
        "leave the semicolon out; join conditions with AND or OR",
    ),
}
_NO_STATEMENT = {
    **dict.fromkeys(("SELECT", "WITH"), "a filter sees one item at a time, so there is nothing to select from"),
    **dict.fromkeys(("CASE",), "DynamoDB has no CASE"),
    **dict.fromkeys(("INTERVAL",), "DynamoDB has no dates; it compares text and numbers"),
}
_COMPARISONS = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_INFIX = ("AND", "OR", "BETWEEN", "IN", "LIKE", "IS")
_CONSTANTS = ("NULL", "TRUE", "FALSE")
_LITERALS = (TokenType.NUMBER, TokenType.STRING)
_OPERAND_ENDS = (
    TokenType.IDENTIFIER,
    TokenType.NUMBER,
    TokenType.STRING,
    TokenType.HEX_STRING,
    TokenType.NULL,
    TokenType.TRUE,
    TokenType.FALSE,
    TokenType.R_PAREN,
    TokenType.R_BRACKET,
)


def refusal(text: str, at: int, what: str, fix: str = "", why: str = "") -> BadFilter:
    """`at` counts from 0; people count from 1."""
    excerpt = text[max(0, at - 12) : at + 28].strip()
    dots = ("…" if at > 12 else "", "…" if at + 28 < len(text) else "")
    return BadFilter(f"{what} (--where, position {at + 1}: {dots[0]}{excerpt}{dots[1]})", fix=fix, why=why)


def _tokens(text: str) -> list[Token]:
    try:
        text.encode()
        tokens: list[Token] = tokenize(text)
    except UnicodeEncodeError as error:
        raise refusal(text.encode(errors="replace").decode(), error.start, "--where is not UTF-8 text") from None
    except TokenError:
        opener = max(text.rfind("'"), text.rfind('"'))
        raise refusal(
            text, max(opener, 0), "a quote is opened and not closed", fix="write a quote within text twice: 'it''s'"
        ) from None
    end = 0
    for token in [*tokens, None]:
        between = text[end : token.start if token else len(text)]
        if between.strip():
            at = end + len(between) - len(between.lstrip())
            raise refusal(text, at, "comments are not taken in a filter", fix="leave it out")
        end = token.end + 1 if token else end
    if len(tokens) > MAX_TOKENS:
        raise BadFilter(
            f"--where is too long: {len(tokens):,} words and signs", fix="DynamoDB takes expressions of 4 KB"
        )
    return tokens


def _is_word(token: Token | None) -> bool:
    """Whether it is written like an unquoted name; a keyword of SQL is, too."""
    plain = (TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER, TokenType.NATIONAL_STRING)
    return token is not None and token.token_type not in plain and (token.text[0].isalpha() or token.text[0] in "_$")


class Preparation:
    """One walk over the tokens. `done` holds pairs of what sqlglot shall read and what was written."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.done: list[tuple[Token, Token]] = []
        self.position = 0
        self.open: list[Token] = []

    def run(self) -> list[Token]:
        """The tokens for sqlglot. Raises BadFilter."""
        while self.position < len(self.tokens):
            self._step(self.tokens[self.position])
            self.position += 1
        if self.open:
            raise self._refuse(self.open[-1], "a parenthesis is opened and not closed")
        if not self._after_operand():
            raise self._refuse(self.tokens[-1], f"nothing follows {self.tokens[-1].text}", fix="complete the condition")
        return [token for token, _ in self.done]

    def _step(self, token: Token) -> None:
        if _is_word(token):
            self._word(token)
        elif token.token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER):
            self._operand(token)
        elif token.token_type in (TokenType.DASH, TokenType.PLUS) and self._signs_number():
            self._signed(token)
        elif token.text in _COMPARISONS:
            self._infix(token)
        elif token.text in "()[].,":
            self._punctuation(token)
        else:
            raise self._no_operator(token)

    def _refuse(self, token: Token, what: str, fix: str = "", why: str = "") -> BadFilter:
        return refusal(self.text, token.start, what, fix, why)

    def _emit(self, written: Token, kind: TokenType | None = None, text: str | None = None) -> None:
        place = {"line": written.line, "col": written.col, "start": written.start, "end": written.end}
        shown = Token(kind or written.token_type, written.text if text is None else text, **place)
        self.done.append((shown, written))

    def _ahead(self, distance: int = 1) -> Token | None:
        index = self.position + distance
        return self.tokens[index] if index < len(self.tokens) else None

    def _after(self, *kinds: TokenType) -> bool:
        return bool(self.done) and self.done[-1][0].token_type in kinds

    def _after_operand(self) -> bool:
        return self._after(*_OPERAND_ENDS)

    def _word(self, token: Token) -> None:
        word, following = token.text.upper(), self._ahead()
        if self._after(TokenType.DOT):
            self._name(token)
        elif word == "NOT":
            self._not(token)
        elif word in _INFIX:
            self._infix(token)
        elif self._after_operand():
            raise self._no_operator(token)
        elif following is not None and following.token_type == TokenType.L_PAREN:
            self._function(token)
        elif word == "X" and following is not None and following.token_type == TokenType.STRING:
            self._binary(token, following)
        elif word in _CONSTANTS:
            self._emit(token)
        else:
            self._name(token)

    def _not(self, token: Token) -> None:
        following = self._ahead()
        if self._after_operand() and (following is None or following.text.upper() not in ("BETWEEN", "IN", "LIKE")):
            raise self._no_operator(token)
        before = [shown.token_type for shown, _ in self.done][-MAX_NESTING:]
        if before == [TokenType.NOT] * MAX_NESTING:
            raise self._refuse(token, f"more than {MAX_NESTING} NOT in a row")
        self._emit(token)

    def _name(self, token: Token) -> None:
        following = self._ahead()
        word = token.text.upper()
        starts = _is_word(following) and following is not None and following.text.upper() not in (*_INFIX, "NOT")
        literal = following is not None and following.token_type in (*_LITERALS, TokenType.STAR)
        if word in _NO_STATEMENT and (starts or literal):
            raise self._refuse(token, _NO_STATEMENT[word], fix="give only the condition that would follow WHERE")
        if word == "WHERE" and starts:
            raise self._refuse(token, "--where already says WHERE", fix="give only the condition that follows it")
        if any(character in _QUOTES for character in token.text):
            raise self._no_operator(token)
        adjacent = following is not None and following.start == token.end + 1
        if literal and (adjacent or word in ("DATE", "TIME", "TIMESTAMP", "DATETIME")):
            raise self._refuse(
                token, f"there are no {token.text} '…' literals", fix="write 'text', 42, X'00FF', TRUE, FALSE or NULL"
            )
        self._emit(token, TokenType.IDENTIFIER)

    def _function(self, token: Token) -> None:
        name = token.text.lower()
        if name in FUNCTIONS:
            self._emit(token, TokenType.IDENTIFIER, f"function {name}")
            return
        reason = _NO_FUNCTION.get(name, "is not a function of DynamoDB")
        if name.startswith("regexp"):
            reason = "is about regular expressions, which DynamoDB has not"
        close = [] if name in _NO_FUNCTION else difflib.get_close_matches(name, FUNCTIONS, n=1)
        guess = _ALSO_CALLED.get(name) or (close[0] if close else "")
        fix = f"did you mean {FUNCTIONS[guess]}?" if guess else f"there are {', '.join(FUNCTIONS)}"
        raise self._refuse(token, f"{token.text}() {reason}", fix=fix)

    def _binary(self, token: Token, digits: Token) -> None:
        try:
            bytes.fromhex(digits.text)
        except ValueError:
            raise self._refuse(token, "X'…' takes pairs of hexadecimal digits", fix="write X'00FF'") from None
        self.position += 1
        self._emit(digits, TokenType.HEX_STRING)

    def _signs_number(self) -> bool:
        following = self._ahead()
        return not self._after_operand() and following is not None and following.token_type == TokenType.NUMBER

    def _signed(self, token: Token) -> None:
        self.position += 1
        number = self.tokens[self.position]
        self._operand(number, "-" if token.text == "-" else "")

    def _operand(self, token: Token, sign: str = "") -> None:
        if self._after_operand():
            raise self._no_operator(token)
        if token.token_type == TokenType.NUMBER:
            self._number(token, sign)
        elif token.token_type == TokenType.IDENTIFIER:
            self._quoted_name(token)
        else:
            self._emit(token)

    def _number(self, token: Token, sign: str) -> None:
        following = self._ahead()
        if self._after(TokenType.DOT):
            raise self._refuse(
                token, f".{token.text} is not understood", fix=f"write list[{token.text}] for an element"
            )
        if following is not None and following.start == token.end + 1 and _is_word(following):
            raise self._refuse(
                token,
                f"{token.text}{following.text} is not a number",
                fix="a name that starts with a digit stands in double quotes",
            )
        if not is_number(token.text):
            raise self._refuse(
                token, f"DynamoDB cannot hold {token.text}", fix="at most 38 digits, from 1E-130 to 9.99E+125"
            )
        self._emit(token, text=sign + token.text)

    def _quoted_name(self, token: Token) -> None:
        following = self._ahead()
        nested = following is not None and following.token_type in (TokenType.DOT, TokenType.L_BRACKET)
        if not token.text:
            raise self._refuse(token, "a name in double quotes is empty", fix="text stands in single quotes: ''")
        right = self.done[-1][1].text.upper() in (*_COMPARISONS, "LIKE") if self.done else False
        if right and not nested and self.done[-2][1].token_type not in (*_LITERALS, TokenType.IDENTIFIER):
            raise self._refuse(
                token,
                f"double quotes make {quoted(token.text)} an attribute's name",
                fix=f"write {Value('S', token.text)} for text; to compare two attributes put both in double quotes",
            )
        self._emit(token)

    def _infix(self, token: Token) -> None:
        negated = self._after(TokenType.NOT) and len(self.done) > 1 and self.done[-2][0].token_type in _OPERAND_ENDS
        if not (self._after_operand() or (negated and token.text.upper() in ("BETWEEN", "IN", "LIKE"))):
            fix = (
                f"an attribute of that name is written {quoted(token.text)}"
                if token.text.isalpha()
                else "name an attribute"
            )
            raise self._refuse(token, f"nothing to the left of {token.text}", fix=fix)
        following = self._ahead()
        if token.text.upper() == "IN" and (following is None or following.token_type != TokenType.L_PAREN):
            raise self._refuse(token, "IN needs a list", fix="write IN ('a', 'b')")
        self._emit(token)
        if token.text.upper() == "IS":
            self._is(token)

    def _is(self, token: Token) -> None:
        following, second = self._ahead(), self._ahead(2)
        negated = following is not None and following.token_type == TokenType.NOT
        state = second if negated else following
        if not _is_word(state) or state is None or state.text.upper() not in ("MISSING", *_CONSTANTS):
            raise self._refuse(
                token, "IS is followed by [NOT] NULL, MISSING, TRUE or FALSE only", fix="compare values with = or <>"
            )
        self.position += 2 if negated else 1
        self._emit(state, TokenType.IDENTIFIER, ("not " if negated else "") + state.text.lower())

    def _punctuation(self, token: Token) -> None:
        if token.token_type == TokenType.L_PAREN:
            self._opened(token)
        elif token.token_type == TokenType.R_PAREN:
            if not self.open:
                raise self._refuse(token, "a parenthesis is closed and was not opened")
            if self._after(TokenType.COMMA):
                raise self._refuse(token, "nothing follows the comma")
            self.open.pop()
        elif token.token_type == TokenType.L_BRACKET:
            self._index(token)
        following = self._ahead()
        if token.text == "." and not self._after_operand() and following and following.token_type == TokenType.NUMBER:
            raise self._refuse(token, f".{following.text} is not understood", fix=f"write 0.{following.text}")
        if token.text in ".,]" and not self._after_operand():
            raise self._refuse(token, f"nothing to the left of {token.text}")
        self._emit(token)

    def _opened(self, token: Token) -> None:
        self.open.append(token)
        if len(self.open) > MAX_NESTING:
            raise self._refuse(token, f"more than {MAX_NESTING} parentheses within one another")
        called = bool(self.done) and self.done[-1][0].text.startswith("function ") and _is_word(self.done[-1][1])
        if self._after_operand() and not called:
            raise self._no_operator(token)

    def _index(self, token: Token) -> None:
        number, closing = self._ahead(), self._ahead(2)
        whole = number is not None and number.token_type == TokenType.NUMBER and number.text.isdecimal()
        if not whole or closing is None or closing.token_type != TokenType.R_BRACKET or not self._after_operand():
            raise self._refuse(
                token, "brackets hold the number of a list's element", fix="write list[0], and map.name for maps"
            )

    def _no_operator(self, token: Token) -> BadFilter:
        following = self._ahead()
        if any(character in _QUOTES for character in token.text) and token.token_type not in _LITERALS:
            return self._refuse(token, f"{token.text} has typographic quotes", fix="text stands in straight ones: 'x'")
        what, fix = _NO_OPERATOR.get(
            token.text.upper(),
            (f"{self.text[token.start : token.end + 1]} is not expected here", "conditions are joined with AND or OR"),
        )
        if token.text == "-" and _is_word(following):
            fix = 'a name with a dash stands in double quotes: "my-name"'
        return self._refuse(token, what, fix=fix)
