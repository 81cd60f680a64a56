"""LaTeX that others wrote, made safe for KaTeX: known commands only, and of a size that a page can hold.

KaTeX can be told to draw bars of any length, to move text over the rest of the page, to colour it and to define
commands that grow without end. Hence only commands of a list are drawn; a formula with another one is shown as its
source.
"""

from __future__ import annotations

import re

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
    """Whether every group and environment ends, and none is nested too deeply."""
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
