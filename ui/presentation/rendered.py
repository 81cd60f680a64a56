"""A reply as its model meant it to look, Markdown and LaTeX, written anew as Markdown in which nothing can act.

The reply is parsed, and only what is known to be harmless is written again: paragraphs, lists, quotes, code, tables,
emphasis and formulas. Every other character is escaped. Links and images become text with their address, a heading is
bold text (Streamlit would give it an anchor), HTML is text.

KaTeX can be told to draw bars of any length, to move text over the rest of the page, to colour it and to define
commands that grow without end. Hence only commands of a list are drawn, in formulas of a size that a page can hold; a
formula with another one is shown as its source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.tree import SyntaxTreeNode

from ui.presentation.theme import WORD_JOINER, escaped, plain

#: How deep lists, quotes and emphasis may be nested.
_DEEPEST = 12
#: Languages whose code is coloured. Not among them: mermaid, of which Streamlit draws a diagram.
_COLOURED = "bash c cpp css go html java javascript json python rust sql toml xml yaml"
_LANGUAGES = frozenset(_COLOURED.split())
_CLOSED_BY = {"$$": "$$", "\\[": "\\]", "\\(": "\\)"}
#: Between single dollar signs: no space beside them on the inside, and no digit or capital after the second one.
_DOLLARS = re.compile(r"\$(?![\s$])((?:[^$\\]|\\.)+?)(?<!\s)\$(?![0-9A-Z_$])")
_MARKS = {"strong": "**", "em": "*", "s": "~~"}


def rendered(text: str) -> str | None:
    """The text as safe Markdown for Streamlit; None where it is nested too deeply to be rendered."""
    tokens = _parser().parse(plain(text))
    if any(token.level > _DEEPEST for outer in tokens for token in (outer, *(outer.children or ()))):
        return None  # the parser drops what is nested deeper than it can follow
    return _blocks(SyntaxTreeNode(tokens).children)


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    # They would hide what the model wrote: an address in a definition, a character behind its number.
    parser.disable(["reference", "entity"])
    ends = ["paragraph", "blockquote", "list"]  # what a formula need not have an empty line before it in
    parser.block.ruler.before("fence", "formula", _displayed_formula, {"alt": ends})
    parser.inline.ruler.before("escape", "formula", _formula_in_text)
    return parser


def _displayed_formula(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """The parser's rule for a formula with lines of its own: `$$ ... $$` or `\\[ ... \\]`."""
    if state.is_code_block(first):
        return False
    lines: list[str] = []
    closed_by = None
    for number in range(first, end):
        if number > first and (state.isEmpty(number) or state.sCount[number] < state.blkIndent):
            return False
        line = state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]
        if closed_by is None:
            closed_by = _CLOSED_BY.get(line[:2])
            if closed_by is None or line[:2] == "\\(":
                return False
            line = line[2:]
        before, closed, after = line.partition(closed_by)
        lines.append(before)
        if not closed:
            continue
        if after.strip() not in ("", ".", ",", ";", ":"):
            return False
        if not silent:
            state.line = number + 1
            token = state.push("formula_block", "math", 0)
            token.content = "\n".join(lines) + after.strip()
            token.map = [first, state.line]
        return True
    return False


def _formula_in_text(state: StateInline, silent: bool) -> bool:
    """The parser's rule for a formula inside a sentence."""
    here = state.src[state.pos : state.pos + 2]
    if closed_by := _CLOSED_BY.get(here):
        ends = state.src.find(closed_by, state.pos + 2, state.posMax)
        content = state.src[state.pos + 2 : ends]
        if ends < 0 or not content.strip():
            return False
        after = ends + 2
    else:
        found = _DOLLARS.match(state.src, state.pos, state.posMax) if here[:1] == "$" else None
        if found is None or is_prose(found[1]) or state.src[max(0, state.pos - 1)].isalnum():
            return False
        content, after = found[1], found.end()
    if not silent:
        token = state.push("formula", "math", 0)
        token.content = content
        token.markup = state.src[state.pos : after]
    state.pos = after
    return True


def _blocks(nodes: Iterable[SyntaxTreeNode], between: str = "\n\n") -> str:
    return between.join(_block(node) for node in nodes)


def _block(node: SyntaxTreeNode) -> str:
    match node.type:
        case "paragraph":
            return _text(node)
        case "heading":
            words = _text(node, bold=True)
            return f"**{words}**" if words else ""
        case "bullet_list" | "ordered_list":
            return _list(node)
        case "blockquote":
            return "\n".join(f"> {line}" for line in _blocks(node.children).split("\n"))
        case "fence" | "code_block":
            return _code_block(node.content, node.info if node.type == "fence" else "")
        case "formula_block":
            formula = safe_formula(node.content)
            return _code_block(node.content) if formula is None else f"$$\n{formula}\n$$"
        case "table":
            return _table(node)
        case _:  # a rule across the page; of other kinds the parser knows none
            return "***"


def _list(node: SyntaxTreeNode) -> str:
    number = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None
    items = []
    tight = all(one.hidden for item in node.children for one in item.children if one.type == "paragraph")
    for place, item in enumerate(node.children):
        mark = "- " if number is None else f"{number + place}. "
        plainly = all(one.type in ("paragraph", "bullet_list", "ordered_list") for one in item.children)
        blocks = _blocks(item.children, "\n" if tight and plainly else "\n\n")
        # Every line that holds anything: one that looks blank here need not be so for the page.
        lines = [f"{' ' * len(mark)}{line}" if line else "" for line in blocks.split("\n")]
        items.append(mark + lines[0][len(mark) :] + "".join(f"\n{line}" for line in lines[1:]))
    return ("\n" if tight else "\n\n").join(items)


def _code_block(content: str, info: str = "") -> str:
    language = info.split()[0].lower() if info.split() else ""
    runs = [len(run) for run in re.findall("`+", content)]
    fence = "`" * max(3, *(run + 1 for run in [2, *runs]))
    known = language if language in _LANGUAGES else ""
    return f"{fence}{known}\n{_in_code(content.removesuffix(chr(10)))}\n{fence}"


def _in_code(content: str) -> str:
    """Streamlit changes `:material/` even in code."""
    return content.replace(":material/", f":{WORD_JOINER}material/")


def _table(node: SyntaxTreeNode) -> str:
    rows = [row for part in node.children for row in part.children]
    lines = [f"| {' | '.join(_text(cell, cell=True) for cell in row.children)} |" for row in rows]
    rules = {"text-align:left": ":--", "text-align:right": "--:", "text-align:center": ":-:"}
    ruled = [rules.get(str(cell.attrs.get("style")), "---") for cell in rows[0].children]
    return "\n".join([lines[0], f"| {' | '.join(ruled)} |", *lines[1:]])


def _text(node: SyntaxTreeNode, *, cell: bool = False, bold: bool = False) -> str:
    return "".join(_inline(inline.children, cell, bold) for inline in node.children)


def _inline(nodes: Sequence[SyntaxTreeNode], cell: bool, bold: bool) -> str:
    """`cell`: inside a table, whose cells are one line and end at a bar; `bold`: inside bold text."""
    parts: list[str] = []
    for node in nodes:
        part = _part(node, cell, bold)
        if part.startswith("$") and parts and parts[-1].endswith("$"):
            part = f" {part}"  # two formulas; a dollar sign in text is never bare
        parts.append(part)
    return "".join(parts)


def _part(node: SyntaxTreeNode, cell: bool, bold: bool) -> str:
    match node.type:
        case "text":
            return _literal(node.content)
        case "softbreak" | "hardbreak":
            return " " if cell else "\\\n"  # models end a line where they mean it to end
        case "code_inline":
            return _code_in_text(node.content, cell)
        case "strong" | "em" | "s":
            inner = _inline(node.children, cell, bold or node.type == "strong")
            mark = "" if (bold and node.type == "strong") or not inner.strip() else _MARKS[node.type]
            return f"{mark}{inner}{mark}"
        case "link":
            inner, address = _inline(node.children, cell, bold), str(node.attrs.get("href", ""))
            return inner if inner == _literal(address) else inner + _literal(f" ({address})")
        case "image":
            return _literal(f"(image, not shown: {node.content} {node.attrs.get('src', '')})")
        case "formula":
            return _formula(node, cell)
        case _:
            return _literal(node.content)


def _literal(text: str) -> str:
    """Text that is only text. Dollar signs and backticks are written by number: how many there are of them tells
    Streamlit whether a page has formulas, and it does not look whether they are escaped."""
    return escaped(text).replace("\\$", "&#36;").replace("\\`", "&#96;")


def _code_in_text(content: str, cell: bool) -> str:
    if "`" in content or not content.strip():
        return _literal(f"`{content}`")
    return f"`{_in_code(content.replace('|', chr(92) + '|') if cell else content)}`"


def _formula(node: SyntaxTreeNode, cell: bool) -> str:
    formula = safe_formula(node.content)
    if formula is None:
        return _code_in_text(" ".join(node.markup.split()), cell)
    if cell:
        formula = formula.replace("\\|", "\\Vert ").replace("|", "\\vert ")
    marks = "$$" if "\\$" in formula else "$"
    return f"{marks}{formula}{marks}"


#: The longest formula that is drawn, in characters, how deep its groups may be, and how many lines it may have.
LONGEST, DEEPEST, MOST_LINES = 1_500, 12, 60

_KNOWN = """
    alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa varkappa lambda mu nu xi pi varpi rho
    varrho sigma varsigma tau upsilon phi varphi chi psi omega digamma Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi
    Psi Omega aleph beth hbar ell imath jmath Re Im wp partial nabla infty prime complement degree circ angle
    measuredangle triangle square blacksquare Box Diamond diamond lozenge star bigstar ast bullet cdot cdots ldots dots
    dotsc dotsb dotsm dotsi vdots ddots colon checkmark dagger ddagger clubsuit diamondsuit heartsuit spadesuit flat
    natural sharp surd top bot QED

    frac dfrac tfrac cfrac binom dbinom tbinom sqrt over choose pm mp times div oplus ominus otimes odot oslash wedge
    vee cap cup sqcap sqcup setminus smallsetminus bmod pmod mod pod land lor lnot neg uplus amalg wr

    sum prod coprod int iint iiint oint bigcap bigcup bigvee bigwedge bigoplus bigotimes bigodot biguplus limits
    nolimits lim limsup liminf max min sup inf arg det dim exp gcd lcm hom ker deg log lg ln sin cos tan cot sec csc
    arcsin arccos arctan sinh cosh tanh coth Pr operatorname

    eq neq ne equiv approx approxeq cong sim simeq propto doteq lt gt le leq leqslant ge geq geqslant ll gg prec succ
    preceq succeq in ni notin subset supset subseteq supseteq subsetneq supsetneq nsubseteq sqsubseteq sqsupseteq mid
    nmid parallel nparallel perp models vdash dashv vDash asymp bowtie smile frown lesssim gtrsim not nless ngtr nleq
    ngeq forall exists nexists emptyset varnothing therefore because

    to gets leftarrow rightarrow leftrightarrow Leftarrow Rightarrow Leftrightarrow longleftarrow longrightarrow
    longleftrightarrow Longleftarrow Longrightarrow Longleftrightarrow implies impliedby iff mapsto longmapsto uparrow
    downarrow updownarrow Uparrow Downarrow nearrow searrow swarrow nwarrow hookrightarrow hookleftarrow rightharpoonup
    rightharpoondown leftharpoonup leftharpoondown rightleftharpoons leadsto xrightarrow xleftarrow nrightarrow
    nRightarrow

    left right middle big Big bigg Bigg bigl Bigl biggl Biggl bigr Bigr biggr Biggr bigm Bigm langle rangle lvert rvert
    lVert rVert vert Vert lfloor rfloor lceil rceil lbrace rbrace lbrack rbrack lgroup rgroup backslash

    hat widehat tilde widetilde bar overline underline vec overrightarrow overleftarrow dot ddot dddot check breve acute
    grave mathring overbrace underbrace overset underset stackrel substack boxed cancel bcancel xcancel sout

    text textbf textit textrm textsf texttt textnormal textup mathrm mathbf mathit mathsf mathtt mathbb mathcal mathfrak
    mathscr mathnormal boldsymbol bold bm pmb rm bf it sf tt displaystyle textstyle scriptstyle scriptscriptstyle
    mathbin mathrel mathop mathord mathopen mathclose mathpunct quad qquad thinspace medspace thickspace space
    enspace nobreakspace hline hdashline tag notag nonumber begin end
"""
_COMMANDS = frozenset(_KNOWN.split())
_SIGNS = frozenset("\\,;:!>{}|$%&#_ ")
_TABLES = """
    equation equation* align align* aligned gather gather* gathered split cases rcases dcases array matrix pmatrix
    bmatrix Bmatrix vmatrix Vmatrix smallmatrix
"""
_ENVIRONMENTS = frozenset(_TABLES.split())
_COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s*\{([^{}]*)\}")
_GROUP_ENDS = re.compile(r"\\(?:begin|end)(?![A-Za-z])|\\.|[{}]", re.DOTALL)
#: A line's end with the height of the gap below it, as in `\\[2em]`; and one that a bracket of the formula follows.
_GAP = re.compile(r"\\\\\*?\s*\[\s*[-+]?[\d.]+\s*[a-z]{2}\s*\]")
_LINE_BEFORE_BRACKET = re.compile(r"(\\\\\*?)\s*(?=\[)")
#: Where Markdown would begin a directive, a tag, a link or an address: a space there means nothing to LaTeX.
_MARKDOWN = re.compile(r"(:)(?![\s=:]|$)|(:)(?=:)|(<)(?!\s)|(\])(?=[(\[:])|(www)(?=\.)", re.IGNORECASE)

_WITHOUT_WORDS = re.compile(r"\\(?:text|mathrm|operatorname)[a-z]*\*?\s*\{[^{}]*\}|\\[A-Za-z]+")
_AMOUNT_AND_WORD = re.compile(r"\d[\d.,]*\s+[A-Za-z]{2,}|[A-Za-z]{2,}\s+[A-Za-z]{2,}")
_MATH_SIGN = re.compile(r"[\\^_=<>+*/{}|]")


def safe_formula(source: str) -> str | None:
    """The formula as KaTeX may be given it, on one line; None for one that is better shown as its source."""
    source = " ".join(_GAP.sub(r"\\\\", source).split())
    source = _LINE_BEFORE_BRACKET.sub(r"\1{}", source)
    if not source or len(source) > LONGEST or source.count("\\\\") > MOST_LINES:
        return None
    commands = _COMMAND.findall(source)
    if any(name not in _COMMANDS and name not in _SIGNS for name in commands) or source.endswith("\\"):
        return None
    environments = _ENVIRONMENT.findall(source)
    if len(environments) != commands.count("begin") + commands.count("end"):
        return None
    if not _ENVIRONMENTS.issuperset(environments) or not _well_nested(source):
        return None
    without_signs = re.sub(r"\\.", "", source, flags=re.DOTALL)
    if any(sign in without_signs for sign in "$`@#"):
        return None
    source = re.sub(r"(?<!\\)((?:\\\\)*)%", r"\1\\%", source)  # else a comment, which would hide what follows
    return _MARKDOWN.sub(lambda found: found[0] + " ", source)


def _well_nested(source: str) -> bool:
    depth = 0
    for found in _GROUP_ENDS.findall(source):
        depth += {"{": 1, "\\begin": 1, "}": -1, "\\end": -1}.get(found, 0)
        if not 0 <= depth <= DEEPEST:
            return False
    return depth == 0


def is_prose(source: str) -> bool:
    """Whether what stands between two dollar signs reads as a sentence about money and not as mathematics."""
    words = _WITHOUT_WORDS.sub(" ", source)
    if _AMOUNT_AND_WORD.search(words):
        return True
    return not _MATH_SIGN.search(source) and re.search(r"[A-Za-z]{3,}", words) is not None
