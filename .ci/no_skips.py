"""Fails when a test was skipped for any reason but absent shared data, or when a lane had no test that ran.

pytest's report says of each test which lane it is of (`tests/conftest.py`).
"""

import sys
from collections import Counter
from xml.etree import ElementTree

LANES = ("browser", "process", "integration")

cases = list(ElementTree.parse(sys.argv[1]).iter("testcase"))
skipped = [(case, reason) for case in cases for reason in case.iter("skipped")]
wrong = [(case, reason) for case, reason in skipped if "shared/" not in reason.get("message", "")]
ran = Counter(
    lane.get("value")
    for case in cases
    if case.find("skipped") is None
    for lane in case.iter("property")
    if lane.get("name") == "lane"
)
absent = [lane for lane in LANES if not ran[lane]]

for case, reason in wrong:
    print(f"skipped: {case.get('classname')}.{case.get('name')}: {reason.get('message')}")
for lane in absent:
    print(f"no {lane} test ran")
counted = ", ".join(f"{ran[lane]} marked {lane}" for lane in LANES)
print(f"{len(cases)} tests, {len(skipped)} skipped, {counted}")
sys.exit(bool(wrong or absent))
