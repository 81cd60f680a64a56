"""Eight generators of problems: four that everything is trained on, four held out from evolution."""

from core.pocket.families.code import CODE
from core.pocket.families.heldout import DATES, SEQUENCES, SETS, UNITS
from core.pocket.families.knowledge import KNOWLEDGE
from core.pocket.families.logic import LOGIC
from core.pocket.families.math import MATH
from core.pocket.problem import Family

BY_NAME: dict[str, Family] = {
    family.name: family for family in (MATH, LOGIC, KNOWLEDGE, CODE, DATES, UNITS, SEQUENCES, SETS)
}
