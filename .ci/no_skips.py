"""Fails when a test was skipped for any reason but absent shared data, or when no browser test ran."""

import sys
from xml.etree import ElementTree

cases = list(ElementTree.parse(sys.argv[1]).iter("testcase"))
skipped = [(case, reason) for case in cases for reason in case.iter("skipped")]
wrong = [(case, reason) for case, reason in skipped if "shared/" not in reason.get("message", "")]
browser = [case for case in cases if case.get("classname", "").startswith("tests.journeys.")]

for case, reason in wrong:
    print(f"skipped: {case.get('classname')}.{case.get('name')}: {reason.get('message')}")
if not browser:
    print("no browser test ran")
print(f"{len(cases)} tests, {len(skipped)} skipped, {len(browser)} in a browser")
sys.exit(bool(wrong) or not browser)
